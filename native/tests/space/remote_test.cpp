// SPDX-License-Identifier: Apache-2.0
//
// Copies of a space with ranks whose memory is not mapped here, and that go away meanwhile.
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "space/space.h"
#include "sync/rcu.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/space/space_fixture.h"
#include "tests/transports/far_memory.h"
#include "tests/transports/faulty.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

// Ranks 1 and 2 are far away; rank 0 is this one, with 2 MiB that are mapped.
struct FarWorld {
    static constexpr std::uint64_t kSlot = 16 * kMiB;
    static constexpr std::uint64_t kHeld = 12 * kMiB;

    std::shared_ptr<Space> space;
    std::shared_ptr<FarMemory> far[3];
    std::shared_ptr<FaultyTransport> way[3];
    std::vector<std::byte> own = pattern(kHeld, 8);

    explicit FarWorld(Faults faults = {}) {
        Status status = Status::MallocFailed;
        for (int attempt = 0; attempt < 20 && status == Status::MallocFailed; ++attempt) {
            status = Space::make({free_range(3 * kSlot), 3, kSlot, 0, 0, "bm object 7"}, space);
        }
        EXPECT_EQ(status, Status::Ok);
        const File file(2 * kMiB);
        EXPECT_EQ(space->attach(0, Tier::Dram, file.fd(), 0, 0, 2 * kMiB), Status::Ok);
        EXPECT_EQ(space->activate(0), Status::Ok);
        for (const std::uint32_t rank : {1U, 2U}) come(rank, faults);
        EXPECT_EQ(space->open(), Status::Ok);
    }
    ~FarWorld() { space->close(); }

    void come(std::uint32_t rank, Faults faults) {
        far[rank] = std::make_shared<FarMemory>(at(rank), kHeld);
        struct Chain {  // the faulty one goes first
            std::shared_ptr<FarMemory> inner;
            FaultyTransport outer;
        };
        const auto chain = std::shared_ptr<Chain>(new Chain{far[rank], {*far[rank], faults}});
        way[rank] = std::shared_ptr<FaultyTransport>(chain, &chain->outer);
        EXPECT_EQ(space->attach_remote(rank, Tier::Dram, 0, kHeld, way[rank]), Status::Ok);
        EXPECT_EQ(space->activate(rank), Status::Ok);
    }
    void wait_until_moving(std::uint32_t rank) const {
        while (way[rank]->started() == 0) std::this_thread::yield();
    }
    std::uintptr_t at(std::uint32_t rank) const { return space->layout().slot_address(rank, Tier::Dram); }
    std::uintptr_t local() const { return reinterpret_cast<std::uintptr_t>(own.data()); }
};

TEST(RemoteSpace, copies_to_far_ranks_and_back) {
    FarWorld world;
    EXPECT_EQ(world.space->copy(world.local(), world.at(1), 5 * kMiB, kL2G), Status::Ok);
    EXPECT_EQ(std::memcmp(world.far[1]->data(), world.own.data(), 5 * kMiB), 0);
    EXPECT_EQ(world.space->copy(world.at(1), world.at(2) + 64, 5 * kMiB, kG2G), Status::Ok);  // through us
    EXPECT_EQ(std::memcmp(world.far[2]->data() + 64, world.own.data(), 5 * kMiB), 0);
    EXPECT_EQ(world.space->copy(world.at(2) + 64, world.at(0), 4096, kG2G), Status::Ok);
    EXPECT_EQ(std::memcmp(&byte_at(world.at(0)), world.own.data(), 4096), 0);
    std::vector<std::byte> back(5 * kMiB);
    const auto target = reinterpret_cast<std::uintptr_t>(back.data());
    EXPECT_EQ(world.space->copy(world.at(2) + 64, target, back.size(), kG2L), Status::Ok);
    EXPECT_EQ(std::memcmp(back.data(), world.own.data(), back.size()), 0);
}

TEST(RemoteSpace, copies_far_memory_onto_itself_in_the_right_order) {
    FarWorld world;
    ASSERT_EQ(world.space->copy(world.local(), world.at(1), 10 * kMiB, kL2G), Status::Ok);
    EXPECT_EQ(world.space->copy(world.at(1), world.at(1) + 4096, 9 * kMiB, kG2G), Status::Ok);
    EXPECT_EQ(std::memcmp(world.far[1]->data() + 4096, world.own.data(), 9 * kMiB), 0);
}

TEST(RemoteSpace, batches_and_rectangles_go_every_way_at_once) {
    FarWorld world;
    const std::vector<std::uint64_t> sources{world.local(), world.local() + 4096, world.local() + 8192, world.at(1)};
    const std::vector<std::uint64_t> targets{world.at(1), world.at(2), world.at(0), world.at(2) + 4096};
    const std::vector<std::uint64_t> sizes(4, 4096);
    ASSERT_EQ(world.space->copy(world.local(), world.at(1), 4096, kAuto), Status::Ok);
    EXPECT_EQ(world.space->copy_batch({sources, targets, sizes}, 4, kAuto), Status::Ok);
    EXPECT_EQ(std::memcmp(world.far[1]->data(), world.own.data(), 4096), 0);
    EXPECT_EQ(std::memcmp(world.far[2]->data(), world.own.data() + 4096, 4096), 0);
    EXPECT_EQ(std::memcmp(&byte_at(world.at(0)), world.own.data() + 8192, 4096), 0);
    EXPECT_EQ(std::memcmp(world.far[2]->data() + 4096, world.own.data(), 4096), 0);

    const Rectangle rectangle{&byte_at(world.at(2) + kMiB), 100, world.own.data(), 128, 64, 50};
    EXPECT_EQ(world.space->copy_2d(rectangle, kL2G), Status::Ok);
    for (std::size_t row = 0; row < 50; ++row) {
        EXPECT_EQ(std::memcmp(world.far[2]->data() + kMiB + row * 100, world.own.data() + row * 128, 64), 0);
    }
}

TEST(RemoteSpace, far_memory_cannot_be_viewed) {
    FarWorld world;
    std::shared_ptr<View> view;
    EXPECT_EQ(world.space->view(1, Tier::Dram, 0, 4096, view), Status::InvalidParam);
    EXPECT_TRUE(says("not mapped in this process"));
    EXPECT_FALSE(world.space->slots().addressable(world.at(1)));
    EXPECT_TRUE(world.space->slots().addressable(world.at(0)));
}

TEST(RemoteSpace, failure_says_what_was_moved) {
    FarWorld world({.fail_at_byte = 1000});
    EXPECT_EQ(world.space->copy(world.local(), world.at(1), 4096, kL2G), Status::PartialFailed);
    EXPECT_TRUE(says("bm object 7: the line was cut; 1000 of 4096 bytes were moved"));
    FarWorld other({.fail_at_byte = 0});
    EXPECT_EQ(other.space->copy(other.local(), other.at(1), 4096, kL2G), Status::NotConnected);
    EXPECT_TRUE(says("bm object 7: the line was cut"));
    EXPECT_EQ(other.space->copy(other.at(1), other.at(2), 4096, kG2G), Status::NotConnected);
}

// A copy that hangs is ended by the death of its rank, by leaving and by closing; none of them waits for more.
TEST(RemoteSpace, copy_that_is_stuck_ends_when_its_rank_or_its_object_does) {
    for (const char* what : {"revoked", "left", "closed"}) {
        FarWorld world({.on_another_thread = true, .stuck = true});
        Status status = Status::Ok;
        std::string sentence;
        std::thread copier([&] {
            status = world.space->copy(world.local(), world.at(1), 4096, kL2G);
            sentence = take_last_error();
        });
        world.wait_until_moving(1);
        rcu::synchronize();  // nobody is inside a guard: the copy has left its own
        if (what == std::string("revoked")) {
            EXPECT_EQ(world.space->revoke(1, "its host is gone"), Status::Ok);
            EXPECT_EQ(world.space->detach(1), Status::Ok);
        } else if (what == std::string("left")) {
            EXPECT_EQ(world.space->shut(Status::NotStarted, "left"), Status::Ok);
        } else {
            world.space->close();
        }
        copier.join();
        EXPECT_NE(status, Status::Ok) << what;
        EXPECT_NE(sentence, "") << what;
        EXPECT_EQ(world.far[1]->data()[0], std::byte{0});
    }
}

TEST(RemoteSpace, successor_waits_for_the_copy_to_the_predecessor) {
    FarWorld world({.delay = 100ms, .on_another_thread = true});
    const std::shared_ptr<FarMemory> before = world.far[1];
    Status status = Status::Ok;
    std::thread copier([&] { status = world.space->copy(world.local(), world.at(1), 4096, kL2G); });
    world.wait_until_moving(1);
    EXPECT_EQ(world.space->revoke(1, "died"), Status::Ok);
    EXPECT_EQ(world.space->detach(1), Status::Ok);
    EXPECT_FALSE(world.space->collect());
    world.come(1, {});
    copier.join();
    EXPECT_NE(status, Status::Ok);
    EXPECT_EQ(world.far[1]->data()[0], std::byte{0});  // whatever was written was written to the one that died
    EXPECT_EQ(world.space->copy(world.local(), world.at(1), 4096, kL2G), Status::Ok);
    EXPECT_EQ(std::memcmp(world.far[1]->data(), world.own.data(), 4096), 0);
}

TEST(RemoteSpace, counts_by_route_and_size) {
    const auto calls = [](Route route, std::uint64_t size_bytes) {
        return rcu::traffic(route, Operation::Copy, size_class(size_bytes)).calls;
    };
    FarWorld world;
    const std::uint64_t far_before = calls(Route::Tcp, 4096);
    const std::uint64_t mapped_before = calls(Route::Mapped, 4096);
    const std::uint64_t large_before = calls(Route::Tcp, 5 * kMiB);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(world.space->copy(world.local(), world.at(1), 4096, kL2G), Status::Ok);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(world.space->copy(world.local(), world.at(0), 4096, kL2G), Status::Ok);
    std::thread([&] { EXPECT_EQ(world.space->copy(world.local(), world.at(1), 5 * kMiB, kL2G), Status::Ok); }).join();
    EXPECT_EQ(calls(Route::Tcp, 4096) - far_before, 3U);
    EXPECT_EQ(calls(Route::Mapped, 4096) - mapped_before, 2U);
    EXPECT_EQ(calls(Route::Tcp, 5 * kMiB) - large_before, 1U);
}

}  // namespace
}  // namespace memfabric
