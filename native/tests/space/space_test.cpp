// SPDX-License-Identifier: Apache-2.0
//
// The life of a space: attaching, leaving, views, closing, forking.
#include "space/space.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/pause_point.h"
#include "space/region_table.h"
#include "tests/check.h"
#include "tests/space/space_fixture.h"

namespace memfabric {
namespace {

using namespace memfabric::testing;

TEST(space_refuses_impossible_layouts) {
    std::shared_ptr<Space> space;
    const std::uintptr_t base = free_range(2 * kMiB);
    const auto make = [&](std::uintptr_t at, std::uint32_t capacity, std::uint64_t dram, std::uint64_t hbm,
                          std::uint32_t rank) {
        return Space::make({at, capacity, dram, hbm, rank, "bm object 1"}, space);
    };
    CHECK_EQ(make(base, 0, kMiB, 0, 0), Status::InvalidParam);
    CHECK_EQ(make(base, 1025, kMiB, 0, 0), Status::InvalidParam);
    CHECK(says("1025"));
    CHECK_EQ(make(base, 2, kMiB, 0, 2), Status::InvalidParam);
    CHECK_EQ(make(base, 2, 0, 0, 0), Status::InvalidParam);
    CHECK_EQ(make(base + 1, 2, kMiB, 0, 0), Status::InvalidParam);
    CHECK_EQ(make(base, 2, kMiB + 1, 0, 0), Status::InvalidParam);
    CHECK_EQ(make(base, 1024, std::uint64_t{1} << 46, 0, 0), Status::InvalidParam);
    CHECK_EQ(make(base, 2, std::uint64_t{1} << 63, std::uint64_t{1} << 63, 0), Status::InvalidParam);
    CHECK_EQ(make(0, 1, kMiB, 0, 0), Status::InvalidParam);
    CHECK_EQ(make((std::uintptr_t{1} << 47) - kMiB, 2, kMiB, 0, 0), Status::InvalidParam);
    CHECK(space == nullptr);
}

TEST(space_names_what_is_in_the_way) {
    const std::uintptr_t base = free_range(2 * kMiB);
    void* wall =
        mmap(reinterpret_cast<void*>(base + kMiB), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    REQUIRE(wall != MAP_FAILED);
    std::shared_ptr<Space> space;
    CHECK_EQ(Space::make({base, 2, kMiB, 0, 0, "bm object 1"}, space), Status::MallocFailed);
    CHECK(says("anonymous memory"));
    munmap(wall, 4096);
    const World world("bm object 5");
    CHECK_EQ(Space::make({world.dram(1), 2, kMiB, 0, 0, "bm object 1"}, space), Status::MallocFailed);
    CHECK(says("taken in this process by bm object 5"));
}

TEST(space_attaches_at_the_end_only) {
    World world;
    const File file(4 * kMiB);
    Space& space = *world.space;
    CHECK_EQ(space.attach(1, Tier::Dram, file.fd(), 0, 0, 2 * kMiB), Status::InvalidParam);
    CHECK(says("grows at its end only"));
    CHECK_EQ(space.attach(1, Tier::Dram, file.fd(), 0, 2 * kMiB, 4 * kMiB), Status::InvalidParam);
    CHECK_EQ(space.attach(1, Tier::Dram, file.fd(), 3 * kMiB, 2 * kMiB, 2 * kMiB), Status::InvalidParam);
    CHECK(says("too few"));
    CHECK_EQ(space.attach(4, Tier::Dram, file.fd(), 0, 0, 2 * kMiB), Status::InvalidParam);
    CHECK_EQ(space.attach(1, Tier::Dram, -1, 0, 2 * kMiB, 2 * kMiB), Status::InvalidParam);
    CHECK_EQ(space.copy(world.local(), world.dram(1) + World::kHeld, 1, kH2G), Status::InvalidParam);
    CHECK_EQ(space.attach(1, Tier::Dram, file.fd(), 2 * kMiB, 2 * kMiB, 2 * kMiB), Status::Ok);
    CHECK_EQ(space.copy(world.local(), world.dram(1) + World::kHeld - 1, 2, kH2G), Status::Ok);
    CHECK(byte_at(world.dram(1) + World::kHeld) == std::byte{0x5a});
}

TEST(space_opens_and_shuts) {
    World world;
    Space& space = *world.space;
    const auto copy = [&] { return space.copy(world.local(), world.dram(1), 8, kH2G); };
    CHECK_EQ(copy(), Status::Ok);
    CHECK_EQ(space.shut(Status::NotConnected, "bm object 7 was evicted"), Status::Ok);
    CHECK_EQ(copy(), Status::NotConnected);
    CHECK(says("bm object 7 was evicted"));
    CHECK_EQ(space.wait(), Status::NotConnected);
    CHECK_EQ(space.open(), Status::Ok);
    CHECK_EQ(copy(), Status::Ok);

    std::shared_ptr<Space> fresh;
    const std::uintptr_t base = free_range(2 * kMiB);
    REQUIRE_EQ(Space::make({base, 1, 2 * kMiB, 0, 0, "bm object 8"}, fresh), Status::Ok);
    CHECK_EQ(fresh->copy(world.local(), base, 8, kH2G), Status::NotStarted);
    CHECK(says("call join() first"));
}

TEST(space_answers_whose_an_address_is) {
    World world;
    Space& space = *world.space;
    CHECK_EQ(space.rank_of(world.dram(2)), 2U);
    CHECK_EQ(space.rank_of(world.dram(3) - 1), 2U);
    CHECK_EQ(space.rank_of(world.hbm(3)), 3U);
    CHECK_EQ(space.rank_of(world.hbm(0) - 1), 3U);
    take_last_error();
    CHECK_EQ(space.rank_of(space.layout().end()), kNoRank);
    CHECK(says("lies outside"));
    CHECK_EQ(space.rank_of(space.layout().base() - 1), kNoRank);
    CHECK(space.slots().addressable(world.dram(1)));
    CHECK(space.slots().addressable(world.dram(1) + World::kHeld - 1));
    CHECK(!space.slots().addressable(world.dram(1) + World::kHeld));
    CHECK(!space.slots().addressable(world.dram(3)));
    CHECK(!space.slots().addressable(world.local()));
}

TEST(space_views_keep_detached_memory) {
    World world;
    Space& space = *world.space;
    std::shared_ptr<View> view;
    std::shared_ptr<View> hbm_view;
    REQUIRE_EQ(space.view(1, Tier::Dram, 100, 50, view), Status::Ok);
    REQUIRE_EQ(space.view(1, Tier::Hbm, 0, World::kHeld, hbm_view), Status::Ok);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(view->data()), world.dram(1) + 100);
    view->data()[0] = std::byte{7};
    CHECK_EQ(space.detach(1), Status::Ok);
    CHECK_EQ(space.copy(world.local(), world.dram(1), 1, kH2G), Status::NotConnected);
    CHECK(says("its memory was detached"));
    CHECK(view->data()[0] == std::byte{7});

    // The newcomer's memory replaces what the view shows, without a gap.
    world.attach(1);
    CHECK(view->data()[0] == std::byte{0});
    CHECK_EQ(space.copy(world.local(), world.dram(1) + 100, 1, kH2G), Status::Ok);
    CHECK(view->data()[0] == std::byte{0x5a});
    view.reset();
    CHECK_EQ(space.copy(world.local(), world.dram(1) + 100, 1, kH2G), Status::Ok);
    hbm_view.reset();
    CHECK_EQ(space.copy(world.local(), world.hbm(1), 1, kL2G), Status::Ok);
}

TEST(space_views_are_checked) {
    World world;
    std::shared_ptr<View> view;
    CHECK_EQ(world.space->view(1, Tier::Dram, World::kHeld - 1, 2, view), Status::InvalidParam);
    CHECK(says("2097152 bytes"));
    CHECK_EQ(world.space->view(1, Tier::Dram, UINT64_MAX, 2, view), Status::InvalidParam);
    CHECK_EQ(world.space->view(3, Tier::Dram, 0, 0, view), Status::NotConnected);
    CHECK_EQ(world.space->view(4, Tier::Dram, 0, 1, view), Status::InvalidParam);
    CHECK(view == nullptr);
}

// The addresses come back when the last view of the memory goes, not before and not later.
TEST(space_keeps_its_addresses_while_views_exist) {
    World world;
    const std::uintptr_t base = world.space->layout().base();
    const std::size_t size_bytes = world.space->layout().size_bytes();
    std::shared_ptr<View> view;
    REQUIRE_EQ(world.space->view(2, Tier::Dram, 0, World::kHeld, view), Status::Ok);
    view->data()[5] = std::byte{9};
    world.space->close();
    world.space->close();
    world.space.reset();
    CHECK(view->data()[5] == std::byte{9});
    std::unique_ptr<Reservation> reservation;
    CHECK_EQ(Reservation::make(base, size_bytes, "test", reservation), Status::MallocFailed);
    view.reset();
    CHECK_EQ(Reservation::make(base, size_bytes, "test", reservation), Status::Ok);
    take_last_error();
}

TEST(space_closed_refuses_everything) {
    World world;
    Space& space = *world.space;
    std::shared_ptr<View> view;
    const std::uintptr_t target = world.dram(1);
    space.close();
    CHECK_EQ(space.copy(world.local(), target, 1, kH2G), Status::InvalidParam);
    CHECK(says("the handle is closed"));
    CHECK_EQ(space.copy(world.local(), target, 1, kH2G, kFlagAsynchronous), Status::InvalidParam);
    CHECK_EQ(space.wait(), Status::InvalidParam);
    CHECK_EQ(space.open(), Status::InvalidParam);
    CHECK_EQ(space.shut(Status::NotStarted, "x"), Status::InvalidParam);
    CHECK_EQ(space.activate(1), Status::InvalidParam);
    CHECK_EQ(space.revoke(1, "x"), Status::InvalidParam);
    CHECK_EQ(space.detach(1), Status::InvalidParam);
    CHECK_EQ(space.view(1, Tier::Dram, 0, 1, view), Status::InvalidParam);
    CHECK_EQ(space.rank_of(target), kNoRank);
}

// What is closed stays closed, also for a thread that was about to open it.
TEST(space_is_not_opened_again_by_a_thread_that_looked_before_it_was_closed) {
    for (const bool opens : {true, false}) {
        World world;
        Status changed = Status::Ok;
        PausePoint::hold("object_state.change");
        std::thread changing(
            [&] { changed = opens ? world.space->open() : world.space->shut(Status::NotStarted, "it left"); });
        CHECK(PausePoint::wait_until_held("object_state.change", std::chrono::seconds(20)));
        world.space->close();
        PausePoint::release("object_state.change");
        changing.join();
        CHECK_EQ(changed, Status::InvalidParam);
        CHECK(world.space->is_closed());
        CHECK(!world.space->is_open());
    }
}

// An array that a forked child inherits stays valid there, whatever the child makes at its addresses.
TEST(space_of_a_forked_child_keeps_inherited_views_valid) {
    World world;
    std::shared_ptr<View> view;
    REQUIRE_EQ(world.space->view(1, Tier::Dram, 0, 64, view), Status::Ok);
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
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    CHECK(byte_at(world.dram(1)) == std::byte{42});
}

TEST(space_in_a_forked_child_is_the_parents) {
    World world;
    REQUIRE_EQ(world.space->copy(world.local(), world.dram(1), 1, kH2G, kFlagAsynchronous), Status::Ok);
    REQUIRE_EQ(world.space->wait(), Status::Ok);
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
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    CHECK_EQ(world.space->copy(world.local(), world.dram(1), 1, kH2G), Status::Ok);
}

}  // namespace
}  // namespace memfabric
