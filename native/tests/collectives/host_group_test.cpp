// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <vector>

#include "base/owned_fd.h"
#include "tests/collectives/host_world.h"

using namespace memfabric;
using namespace memfabric::tests;

TEST(HostGroup, barrier_holds_everybody_until_the_last_one_comes) {
    const HostWorld world(4);
    std::atomic<int> inside{0};
    world.run([&](std::uint32_t rank) {
        for (int round = 1; round <= 500; ++round) {
            inside.fetch_add(1);
            EXPECT_EQ(world.groups[rank]->barrier(kLong, nullptr), Status::Ok);
            EXPECT_EQ(inside.load(), 4 * round);
            EXPECT_EQ(world.groups[rank]->barrier(kLong, nullptr), Status::Ok);
        }
    });
}

TEST(HostGroup, all_gather_has_everybodys_data_of_this_round) {
    const HostWorld world(3);
    world.run([&](std::uint32_t rank) {
        for (std::uint64_t round = 0; round < 500; ++round) {
            const auto mine = letter(rank, round);
            std::array<std::array<std::uint64_t, 2>, 3> all{};
            EXPECT_EQ(world.groups[rank]->all_gather(reinterpret_cast<const std::byte*>(&mine), sizeof mine,
                                                     reinterpret_cast<std::byte*>(&all), kLong, nullptr),
                      Status::Ok);
            for (std::uint32_t peer = 0; peer < 3; ++peer) EXPECT_EQ(all[peer], letter(peer, round));
        }
    });
}

// All ranks of a host open the page at once: none of them may find it half-made.
TEST(HostGroup, control_page_is_ready_before_anybody_opens_it) {
    constexpr std::uint32_t kRanks = 3;
    const HostWorld world(kRanks);
    const auto group_at = reinterpret_cast<std::uintptr_t>(&world.pages[0]->group(0));
    const std::uintptr_t page_at = reinterpret_cast<std::uintptr_t>(&world.pages[0]->life(0)) / 4096 * 4096;
    int fd = -1;
    ASSERT_EQ(ControlPage::create(kRanks, fd), Status::Ok);
    GroupSlot fresh{};
    EXPECT_EQ(pread(fd, static_cast<void*>(&fresh), sizeof fresh, static_cast<off_t>(group_at - page_at)),
              static_cast<ssize_t>(sizeof fresh));
    ::close(fd);
    EXPECT_EQ(fresh.state.load(), GroupSlot::kReady);
    EXPECT_EQ(fresh.size, kRanks);
    EXPECT_EQ(fresh.slots_at, world.pages[0]->group(0).slots_at);
}

TEST(HostGroup, control_page_that_could_be_cut_is_refused) {
    int ours = -1;
    ASSERT_EQ(ControlPage::create(2, ours), Status::Ok);
    const OwnedFd whole(ours);
    std::vector<char> content(static_cast<std::size_t>(lseek(whole.get(), 0, SEEK_END)));
    ASSERT_EQ(pread(whole.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
    const OwnedFd unsealed(memfd_create("memfabric-control", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(write(unsealed.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
    std::shared_ptr<ControlPage> page;
    EXPECT_EQ(ControlPage::open(unsealed.get(), 2, page), Status::InvalidParam);
    EXPECT_TRUE(says("can still be cut"));
    EXPECT_EQ(page, nullptr);
    ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_EQ(ControlPage::open(unsealed.get(), 2, page), Status::Ok) << last_error();
}

TEST(HostGroup, forked_child_has_no_part_in_the_group) {
    const HostWorld world(1);
    HostGroup& group = *world.groups[0];
    Collective* subgroup = nullptr;
    ASSERT_EQ(group.subgroup("one", 1, 0, kLong, subgroup), Status::Ok);
    const pid_t child = fork();
    if (child == 0) {
        alarm(5);
        const std::byte mine{};
        std::byte all{};
        int failed = group.barrier(kLong, nullptr) != Status::NotInit ? 1 : 0;
        failed |= contains(last_error(), "forked") ? 0 : 2;
        failed |= group.all_gather(&mine, 1, &all, kLong, nullptr) != Status::NotInit ? 4 : 0;
        failed |= group.subgroup("one", 1, 0, kLong, subgroup) != Status::NotInit ? 8 : 0;
        group.declare_gone(0, "nonsense");
        group.leave();
        failed |= group.barrier(kLong, nullptr) != Status::NotInit ? 16 : 0;
        _exit(failed);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(group.barrier(kLong, nullptr), Status::Ok);
}

TEST(HostGroup, one_rank_is_never_held) {
    const HostWorld world(1);
    EXPECT_EQ(world.groups[0]->barrier(0s, nullptr), Status::Ok);
    std::byte result[1];
    const std::byte mine{7};
    EXPECT_EQ(world.groups[0]->all_gather(&mine, 1, result, 0s, nullptr), Status::Ok);
    EXPECT_EQ(result[0], mine);
}

TEST(HostGroup, time_out_names_the_missing_and_takes_the_arrival_back) {
    const HostWorld world(3);
    EXPECT_EQ(world.groups[1]->barrier(20ms, nullptr), Status::Timeout);
    EXPECT_TRUE(contains(last_error(), "2 of 3 ranks did not arrive"));
    EXPECT_TRUE(contains(last_error(), "rank 0, rank 2"));
    world.run([&](std::uint32_t rank) { EXPECT_EQ(world.groups[rank]->barrier(kLong, nullptr), Status::Ok); });
}

TEST(HostGroup, unequal_lengths_are_refused_on_every_rank) {
    const HostWorld world(3);
    world.run([&](std::uint32_t rank) {
        const std::vector<std::byte> mine(rank == 2 ? 16 : 8);
        std::vector<std::byte> result(3 * mine.size());
        const auto length = static_cast<std::uint32_t>(mine.size());
        EXPECT_EQ(world.groups[rank]->all_gather(mine.data(), length, result.data(), kLong, nullptr),
                  Status::InvalidParam);
        EXPECT_TRUE(contains(last_error(), "rank 0 brought 8 bytes"));
        EXPECT_TRUE(contains(last_error(), "rank 2 brought 16 bytes"));
        EXPECT_EQ(world.groups[rank]->barrier(kLong, nullptr), Status::Ok);
    });
}

TEST(HostGroup, barrier_and_all_gather_do_not_mix) {
    const HostWorld world(2);
    world.run([&](std::uint32_t rank) {
        std::byte mine{1};
        std::byte result[2];
        const Status status = rank == 0 ? world.groups[0]->barrier(kLong, nullptr)
                                        : world.groups[1]->all_gather(&mine, 1, result, kLong, nullptr);
        EXPECT_EQ(status, Status::InvalidParam);
        EXPECT_TRUE(contains(last_error(), "rank 0 called barrier, rank 1 brought 1 bytes"));
    });
}

TEST(HostGroup, threads_of_one_rank_take_turns) {
    const HostWorld world(2);
    std::atomic<int> passed{0};
    HostWorld::run({0, 1, 2, 3}, [&](std::uint32_t thread) {
        for (int round = 0; round < 100; ++round) {
            if (world.groups[thread % 2]->barrier(kLong, nullptr) == Status::Ok) passed.fetch_add(1);
        }
    });
    EXPECT_EQ(passed.load(), 400);
}

// Ranks give up at random moments and call again: nobody may get a round that others did not get.
TEST(HostGroup, time_outs_at_random_never_mix_rounds) {
    const HostWorld world(3);
    constexpr std::uint64_t kRounds = 300;
    world.run([&](std::uint32_t rank) {
        std::mt19937 random(rank);
        for (std::uint64_t round = 0; round < kRounds; ++round) {
            const auto mine = letter(rank, round);
            std::array<std::array<std::uint64_t, 2>, 3> all{};
            Status status = Status::Timeout;
            while (status == Status::Timeout) {
                const std::chrono::microseconds patience(round + 1 == kRounds ? 5'000'000 : random() % 200);
                status = world.groups[rank]->all_gather(reinterpret_cast<const std::byte*>(&mine), sizeof mine,
                                                        reinterpret_cast<std::byte*>(&all), patience, nullptr);
            }
            EXPECT_EQ(status, Status::Ok);
            for (std::uint32_t peer = 0; peer < 3; ++peer) EXPECT_EQ(all[peer], letter(peer, round));
        }
    });
}
