// SPDX-License-Identifier: Apache-2.0
//
// The life of a space: attaching, leaving, views, closing, forking.
#include "space/space.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "space/region_table.h"
#include "tests/assertions.h"
#include "tests/space/space_fixture.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

TEST(Space, refuses_impossible_layouts) {
    std::shared_ptr<Space> space;
    const std::uintptr_t base = free_range(2 * kMiB);
    const auto make = [&](std::uintptr_t at, std::uint32_t capacity, std::uint64_t dram, std::uint64_t hbm,
                          std::uint32_t rank) {
        return Space::make({at, capacity, dram, hbm, rank, "bm object 1"}, space);
    };
    EXPECT_EQ(make(base, 0, kMiB, 0, 0), Status::InvalidParam);
    EXPECT_EQ(make(base, 1025, kMiB, 0, 0), Status::InvalidParam);
    EXPECT_TRUE(says("1025"));
    EXPECT_EQ(make(base, 2, kMiB, 0, 2), Status::InvalidParam);
    EXPECT_EQ(make(base, 2, 0, 0, 0), Status::InvalidParam);
    EXPECT_EQ(make(base + 1, 2, kMiB, 0, 0), Status::InvalidParam);
    EXPECT_EQ(make(base, 2, kMiB + 1, 0, 0), Status::InvalidParam);
    EXPECT_EQ(make(base, 1024, std::uint64_t{1} << 46, 0, 0), Status::InvalidParam);
    EXPECT_EQ(make(base, 2, std::uint64_t{1} << 63, std::uint64_t{1} << 63, 0), Status::InvalidParam);
    EXPECT_EQ(make(0, 1, kMiB, 0, 0), Status::InvalidParam);
    EXPECT_EQ(make((std::uintptr_t{1} << 47) - kMiB, 2, kMiB, 0, 0), Status::InvalidParam);
    EXPECT_EQ(space, nullptr);
}

TEST(Space, names_what_is_in_the_way) {
    const std::uintptr_t base = free_range(2 * kMiB);
    void* wall =
        mmap(reinterpret_cast<void*>(base + kMiB), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ASSERT_NE(wall, MAP_FAILED);
    std::shared_ptr<Space> space;
    EXPECT_EQ(Space::make({base, 2, kMiB, 0, 0, "bm object 1"}, space), Status::MallocFailed);
    EXPECT_TRUE(says("anonymous memory"));
    munmap(wall, 4096);
    const World world("bm object 5");
    EXPECT_EQ(Space::make({world.dram(1), 2, kMiB, 0, 0, "bm object 1"}, space), Status::MallocFailed);
    EXPECT_TRUE(says("taken in this process by bm object 5"));
}

TEST(Space, attaches_at_the_end_only) {
    World world;
    const File file(4 * kMiB);
    Space& space = *world.space;
    EXPECT_EQ(space.attach(1, Tier::Dram, file.fd(), 0, 0, 2 * kMiB), Status::InvalidParam);
    EXPECT_TRUE(says("grows at its end only"));
    EXPECT_EQ(space.attach(1, Tier::Dram, file.fd(), 0, 2 * kMiB, 4 * kMiB), Status::InvalidParam);
    EXPECT_EQ(space.attach(1, Tier::Dram, file.fd(), 3 * kMiB, 2 * kMiB, 2 * kMiB), Status::InvalidParam);
    EXPECT_TRUE(says("too few"));
    EXPECT_EQ(space.attach(4, Tier::Dram, file.fd(), 0, 0, 2 * kMiB), Status::InvalidParam);
    EXPECT_EQ(space.attach(1, Tier::Dram, -1, 0, 2 * kMiB, 2 * kMiB), Status::InvalidParam);
    EXPECT_EQ(space.copy(world.local(), world.dram(1) + World::kHeld, 1, kH2G), Status::InvalidParam);
    EXPECT_EQ(space.attach(1, Tier::Dram, file.fd(), 2 * kMiB, 2 * kMiB, 2 * kMiB), Status::Ok);
    EXPECT_EQ(space.copy(world.local(), world.dram(1) + World::kHeld - 1, 2, kH2G), Status::Ok);
    EXPECT_EQ(byte_at(world.dram(1) + World::kHeld), std::byte{0x5a});
}

TEST(Space, opens_and_shuts) {
    World world;
    Space& space = *world.space;
    const auto copy = [&] { return space.copy(world.local(), world.dram(1), 8, kH2G); };
    EXPECT_EQ(copy(), Status::Ok);
    EXPECT_EQ(space.shut(Status::NotConnected, "bm object 7 was evicted"), Status::Ok);
    EXPECT_EQ(copy(), Status::NotConnected);
    EXPECT_TRUE(says("bm object 7 was evicted"));
    EXPECT_EQ(space.wait(), Status::NotConnected);
    EXPECT_EQ(space.open(), Status::Ok);
    EXPECT_EQ(copy(), Status::Ok);

    std::shared_ptr<Space> fresh;
    const std::uintptr_t base = free_range(2 * kMiB);
    ASSERT_EQ(Space::make({base, 1, 2 * kMiB, 0, 0, "bm object 8"}, fresh), Status::Ok);
    EXPECT_EQ(fresh->copy(world.local(), base, 8, kH2G), Status::NotStarted);
    EXPECT_TRUE(says("call join() first"));
}

TEST(Space, answers_whose_an_address_is) {
    World world;
    Space& space = *world.space;
    EXPECT_EQ(space.rank_of(world.dram(2)), 2U);
    EXPECT_EQ(space.rank_of(world.dram(3) - 1), 2U);
    EXPECT_EQ(space.rank_of(world.hbm(3)), 3U);
    EXPECT_EQ(space.rank_of(world.hbm(0) - 1), 3U);
    take_last_error();
    EXPECT_EQ(space.rank_of(space.layout().end()), kNoRank);
    EXPECT_TRUE(says("lies outside"));
    EXPECT_EQ(space.rank_of(space.layout().base() - 1), kNoRank);
    EXPECT_TRUE(space.slots().addressable(world.dram(1)));
    EXPECT_TRUE(space.slots().addressable(world.dram(1) + World::kHeld - 1));
    EXPECT_FALSE(space.slots().addressable(world.dram(1) + World::kHeld));
    EXPECT_FALSE(space.slots().addressable(world.dram(3)));
    EXPECT_FALSE(space.slots().addressable(world.local()));
}

TEST(Space, views_keep_detached_memory) {
    World world;
    Space& space = *world.space;
    std::shared_ptr<View> view;
    std::shared_ptr<View> hbm_view;
    ASSERT_EQ(space.view(1, Tier::Dram, 100, 50, view), Status::Ok);
    ASSERT_EQ(space.view(1, Tier::Hbm, 0, World::kHeld, hbm_view), Status::Ok);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view->data()), world.dram(1) + 100);
    view->data()[0] = std::byte{7};
    EXPECT_EQ(space.detach(1), Status::Ok);
    EXPECT_EQ(space.copy(world.local(), world.dram(1), 1, kH2G), Status::NotConnected);
    EXPECT_TRUE(says("its memory was detached"));
    EXPECT_EQ(view->data()[0], std::byte{7});

    // The newcomer's memory replaces what the view shows, without a gap.
    world.attach(1);
    EXPECT_EQ(view->data()[0], std::byte{0});
    EXPECT_EQ(space.copy(world.local(), world.dram(1) + 100, 1, kH2G), Status::Ok);
    EXPECT_EQ(view->data()[0], std::byte{0x5a});
    view.reset();
    EXPECT_EQ(space.copy(world.local(), world.dram(1) + 100, 1, kH2G), Status::Ok);
    hbm_view.reset();
    EXPECT_EQ(space.copy(world.local(), world.hbm(1), 1, kL2G), Status::Ok);
}

TEST(Space, views_are_checked) {
    World world;
    std::shared_ptr<View> view;
    EXPECT_EQ(world.space->view(1, Tier::Dram, World::kHeld - 1, 2, view), Status::InvalidParam);
    EXPECT_TRUE(says("2097152 bytes"));
    EXPECT_EQ(world.space->view(1, Tier::Dram, UINT64_MAX, 2, view), Status::InvalidParam);
    EXPECT_EQ(world.space->view(3, Tier::Dram, 0, 0, view), Status::NotConnected);
    EXPECT_EQ(world.space->view(4, Tier::Dram, 0, 1, view), Status::InvalidParam);
    EXPECT_EQ(view, nullptr);
}

// The addresses come back when the last view of the memory goes, not before and not later.
TEST(Space, keeps_its_addresses_while_views_exist) {
    World world;
    const std::uintptr_t base = world.space->layout().base();
    const std::size_t size_bytes = world.space->layout().size_bytes();
    std::shared_ptr<View> view;
    ASSERT_EQ(world.space->view(2, Tier::Dram, 0, World::kHeld, view), Status::Ok);
    view->data()[5] = std::byte{9};
    world.space->close();
    world.space->close();
    world.space.reset();
    EXPECT_EQ(view->data()[5], std::byte{9});
    std::unique_ptr<Reservation> reservation;
    EXPECT_EQ(Reservation::make(base, size_bytes, "test", reservation), Status::MallocFailed);
    view.reset();
    EXPECT_EQ(Reservation::make(base, size_bytes, "test", reservation), Status::Ok);
    take_last_error();
}

TEST(Space, closed_refuses_everything) {
    World world;
    Space& space = *world.space;
    std::shared_ptr<View> view;
    const std::uintptr_t target = world.dram(1);
    space.close();
    EXPECT_EQ(space.copy(world.local(), target, 1, kH2G), Status::InvalidParam);
    EXPECT_TRUE(says("the handle is closed"));
    EXPECT_EQ(space.copy(world.local(), target, 1, kH2G, kFlagAsynchronous), Status::InvalidParam);
    EXPECT_EQ(space.wait(), Status::InvalidParam);
    EXPECT_EQ(space.open(), Status::InvalidParam);
    EXPECT_EQ(space.shut(Status::NotStarted, "x"), Status::InvalidParam);
    EXPECT_EQ(space.activate(1), Status::InvalidParam);
    EXPECT_EQ(space.revoke(1, "x"), Status::InvalidParam);
    EXPECT_EQ(space.detach(1), Status::InvalidParam);
    EXPECT_EQ(space.view(1, Tier::Dram, 0, 1, view), Status::InvalidParam);
    EXPECT_EQ(space.rank_of(target), kNoRank);
}

// What is closed stays closed, also for a thread that was about to open it.
TEST(Space, is_not_opened_again_by_a_thread_that_looked_before_it_was_closed) {
    for (const bool opens : {true, false}) {
        World world;
        Status changed = Status::Ok;
        PausePoint::hold("object_state.change");
        std::thread changing(
            [&] { changed = opens ? world.space->open() : world.space->shut(Status::NotStarted, "it left"); });
        EXPECT_TRUE(PausePoint::wait_until_held("object_state.change", std::chrono::seconds(20)));
        world.space->close();
        PausePoint::release("object_state.change");
        changing.join();
        EXPECT_EQ(changed, Status::InvalidParam);
        EXPECT_TRUE(world.space->is_closed());
        EXPECT_FALSE(world.space->is_open());
    }
}

// An array that a forked child inherits stays valid there, whatever the child makes at its addresses.
TEST(Space, of_a_forked_child_keeps_inherited_views_valid) {
    World world;
    std::shared_ptr<View> view;
    ASSERT_EQ(world.space->view(1, Tier::Dram, 0, 64, view), Status::Ok);
    byte_at(world.dram(1)) = std::byte{42};
    const std::uintptr_t base = world.space->layout().base();
    const pid_t child = fork();
    if (child == 0) {
        alarm(5);
        int failed = 0;
        const Space::Config config{base, World::kRanks, World::kMaxDram, World::kMaxHbm, 0, "bm object 7"};
        std::shared_ptr<Space> own;
        failed |= Space::make(config, own) != Status::Ok ? 1 : 0;
        failed |= byte_at(world.dram(1)) != std::byte{42} ? 2 : 0;
        {
            const File file(2 * kMiB);
            failed |= own->attach(1, Tier::Dram, file.fd(), 0, 0, 2 * kMiB) != Status::Ok ? 4 : 0;
        }
        failed |= own->activate(1) != Status::Ok || own->open() != Status::Ok ? 8 : 0;
        failed |= own->copy(world.local(), world.dram(1), 8, kH2G) != Status::Ok ? 16 : 0;
        own->close();
        failed |= byte_at(world.dram(1)) != std::byte{0x5a} ? 32 : 0;
        own.reset();
        failed |= byte_at(world.dram(1)) != std::byte{0x5a} ? 64 : 0;
        view.reset();
        std::shared_ptr<Space> next;
        failed |= Space::make(config, next) != Status::Ok ? 128 : 0;
        _exit(failed);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(byte_at(world.dram(1)), std::byte{42});
}

TEST(Space, in_a_forked_child_is_the_parents) {
    World world;
    ASSERT_EQ(world.space->copy(world.local(), world.dram(1), 1, kH2G, kFlagAsynchronous), Status::Ok);
    ASSERT_EQ(world.space->wait(), Status::Ok);
    const std::uintptr_t base = world.space->layout().base();
    const pid_t child = fork();
    if (child == 0) {
        alarm(5);
        int failed = 0;
        failed |= world.space->copy(world.local(), world.dram(1), 1, kH2G) != Status::NotInit ? 1 : 0;
        failed |= world.space->wait() != Status::NotInit ? 2 : 0;
        // What was inherited makes room for an object of the child's own.
        std::shared_ptr<Space> own;
        failed |=
            Space::make({base, World::kRanks, World::kMaxDram, World::kMaxHbm, 0, "bm object 7"}, own) != Status::Ok
                ? 4
                : 0;
        world.space->close();
        const File file(2 * kMiB);
        failed |= own->attach(1, Tier::Dram, file.fd(), 0, 0, 2 * kMiB) != Status::Ok ? 8 : 0;
        failed |= own->activate(1) != Status::Ok || own->open() != Status::Ok ? 16 : 0;
        failed |= own->copy(world.local(), world.dram(1), 8, kH2G) != Status::Ok ? 32 : 0;
        _exit(failed);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(world.space->copy(world.local(), world.dram(1), 1, kH2G), Status::Ok);
}

}  // namespace
}  // namespace memfabric
