// SPDX-License-Identifier: Apache-2.0
//
// Ranks that go away while copies run: no copy may crash, hang, or report success for what was revoked meanwhile.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/pause_point.h"
#include "space/resolver.h"
#include "space/space.h"
#include "sync/rcu.h"
#include "tests/assertions.h"
#include "tests/space/space_fixture.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

// The moment between moving and checking again, held still: the parts of a space without the moving.
struct Parts {
    const Layout layout{free_range(4 * kMiB), 2, 2 * kMiB, 0};
    const std::string name = "bm object 7";
    ObjectState object_state{name};
    std::unique_ptr<SlotTable> slots;
    std::unique_ptr<Resolver> resolver;

    Parts() {
        std::unique_ptr<Reservation> reservation;
        require_ok(Reservation::make(layout.base(), layout.size_bytes(), name, reservation));
        slots = std::make_unique<SlotTable>(layout, 0, name, std::move(reservation));
        resolver = std::make_unique<Resolver>(layout, *slots, object_state, name);
        come(0);
        come(1);
        require_ok(object_state.open());
    }
    void come(std::uint32_t rank) {
        const File file(2 * kMiB);
        require_ok(slots->attach(rank, Tier::Dram, file.fd(), 0, 0, 2 * kMiB));
        require_ok(slots->activate(rank));
    }
    Piece piece(std::uint32_t from, std::uint32_t to) const {
        return {&byte_at(layout.slot_address(to, Tier::Dram)), &byte_at(layout.slot_address(from, Tier::Dram)), 64};
    }
};

template <typename Meanwhile>
Status recheck_after(Parts& parts, const Piece& piece, Meanwhile meanwhile) {
    Resolution found;
    {
        const rcu::ReadGuard guard;
        const Status status = parts.resolver->resolve(piece, kG2G, found);
        if (status != Status::Ok) return status;
    }
    meanwhile();
    const rcu::ReadGuard guard;
    return parts.resolver->recheck(piece, found);
}

TEST(Revocation, recheck_accepts_when_nothing_happened) {
    Parts parts;
    EXPECT_EQ(recheck_after(parts, parts.piece(0, 1), [] {}), Status::Ok);
    EXPECT_EQ(recheck_after(parts, parts.piece(0, 0), [&] { EXPECT_EQ(parts.slots->revoke(1, "died"), Status::Ok); }),
              Status::Ok);
}

TEST(Revocation, recheck_fails_after_a_revocation_of_either_side) {
    for (const std::uint32_t gone : {0U, 1U}) {
        Parts parts;
        EXPECT_EQ(
            recheck_after(parts, parts.piece(0, 1), [&] { EXPECT_EQ(parts.slots->revoke(gone, "died"), Status::Ok); }),
            gone == 1 ? Status::NotConnected : Status::PartialFailed)
            << "the target is there and undefined, or nobody has it";
        EXPECT_TRUE(says("rank " + std::to_string(gone) + " cannot be reached: died"));
    }
}

TEST(Revocation, recheck_fails_though_a_newcomer_has_taken_the_rank) {
    Parts parts;
    EXPECT_EQ(recheck_after(parts, parts.piece(0, 1),
                            [&] {
                                EXPECT_EQ(parts.slots->revoke(1, "died"), Status::Ok);
                                EXPECT_EQ(parts.slots->detach(1), Status::Ok);
                                parts.come(1);
                            }),
              Status::NotConnected);
    EXPECT_TRUE(says("went away during the copy"));
    EXPECT_EQ(recheck_after(parts, parts.piece(0, 1), [] {}), Status::Ok);
}

TEST(Revocation, recheck_fails_after_leaving) {
    Parts parts;
    EXPECT_EQ(recheck_after(parts, parts.piece(0, 1),
                            [&] { EXPECT_EQ(parts.object_state.shut(Status::NotStarted, "left"), Status::Ok); }),
              Status::NotStarted);
    EXPECT_EQ(parts.object_state.open(), Status::Ok);
    EXPECT_EQ(recheck_after(parts, parts.piece(0, 1),
                            [&] {
                                EXPECT_EQ(parts.object_state.shut(Status::NotStarted, "left"), Status::Ok);
                                EXPECT_EQ(parts.object_state.open(), Status::Ok);
                            }),
              Status::NotStarted);
    EXPECT_TRUE(says("left and joined again"));
}

// An object ends after a copy saw it open and before it looked at its ranks, which are gone by then.
TEST(Revocation, end_of_the_object_is_the_reason_not_the_ranks_that_go_with_it) {
    World world;
    ASSERT_EQ(world.space->revoke(1, "the object was closed"), Status::Ok);
    Status status = Status::Ok;
    PausePoint::hold("space.resolve.refused");
    std::thread copier([&] { status = world.space->copy(world.local(), world.dram(1), 64, kL2G); });
    const bool held = PausePoint::wait_until_held("space.resolve.refused", 20s);
    const Status shut = world.space->shut(Status::NotStarted, "it was left");
    PausePoint::release("space.resolve.refused");
    copier.join();
    EXPECT_TRUE(held);
    EXPECT_EQ(shut, Status::Ok);
    EXPECT_EQ(status, Status::NotStarted);
}

// One member dies and comes back again and again while others copy from and to it without a pause.
TEST(Revocation, copies_survive_ranks_that_come_and_go) {
    World world;
    std::atomic<bool> stop{false};
    std::atomic<int> rank_is_gone{0};  // odd while rank 1 is revoked
    std::atomic<int> false_successes{0};
    std::atomic<int> unexpected{0};
    std::atomic<long> succeeded{0};
    std::atomic<long> refused{0};
    const auto copy_on = [&](std::size_t number) {
        std::vector<std::byte> mine(256 * 1024);
        const std::uintptr_t own = reinterpret_cast<std::uintptr_t>(mine.data());
        const std::uintptr_t slot = world.dram(1) + number * mine.size();
        for (std::size_t i = 0; !stop; ++i) {
            const std::size_t size_bytes = i % 3 == 0 ? mine.size() : 4096;
            const int before = rank_is_gone;
            const Status status = i % 2 == 0 ? world.space->copy(own, slot, size_bytes, kH2G)
                                             : world.space->copy(slot, own, size_bytes, kG2H);
            if (status == Status::Ok && before % 2 == 1 && rank_is_gone == before) ++false_successes;
            if (i % 2 == 1 && status == Status::PartialFailed) continue;  // of a read: what came is undefined
            if (status != Status::Ok && status != Status::NotConnected) ++unexpected;
            (status == Status::Ok ? succeeded : refused) += 1;
        }
    };
    std::vector<std::thread> copiers;
    for (std::size_t number = 0; number < 3; ++number) copiers.emplace_back(copy_on, number);
    for (int round = 0; round < 100 || ((succeeded == 0 || refused == 0) && round < 10'000); ++round) {
        EXPECT_EQ(world.space->revoke(1, "round " + std::to_string(round)), Status::Ok);
        ++rank_is_gone;
        if (round % 2 == 0) std::this_thread::yield();
        EXPECT_EQ(world.space->detach(1), Status::Ok);
        ++rank_is_gone;
        world.attach(1);
        std::this_thread::sleep_for(200us);
    }
    stop = true;
    for (std::thread& copier : copiers) copier.join();
    EXPECT_EQ(false_successes.load(), 0);
    EXPECT_EQ(unexpected.load(), 0);
    EXPECT_GT(succeeded, 0);
    EXPECT_GT(refused, 0);
}

// The world can vanish as a whole, too.
TEST(Revocation, copies_survive_close) {
    for (int round = 0; round < 20; ++round) {
        World world;
        std::atomic<bool> stop{false};
        std::vector<std::thread> copiers;
        for (std::size_t number = 0; number < 2; ++number) {
            copiers.emplace_back([&, number] {
                while (!stop) {
                    const Status status =
                        world.space->copy(world.dram(1) + number * 8192, world.dram(2) + number * 8192, 8192, kG2G);
                    // Closed, or, for a copy that was just being checked, its rank revoked because of that.
                    if (status != Status::NotConnected && status != Status::Ok) {
                        EXPECT_EQ(status, Status::InvalidParam);
                    }
                }
            });
        }
        std::this_thread::sleep_for(1ms);
        world.space->close();
        stop = true;
        for (std::thread& copier : copiers) copier.join();
    }
}

// A copy of many chunks does not hold up the departure of its rank, nor that of others.
TEST(Revocation, large_copies_give_way_between_chunks) {
    constexpr std::uint64_t kSize = 256 * kMiB;
    std::shared_ptr<Space> space;
    ASSERT_EQ(Space::make({free_range(3 * kSize), 3, kSize, 0, 0, "bm object 7"}, space), Status::Ok);
    for (const std::uint32_t rank : {0U, 1U}) {
        const File file(kSize);
        ASSERT_EQ(space->attach(rank, Tier::Dram, file.fd(), 0, 0, kSize), Status::Ok);
        ASSERT_EQ(space->activate(rank), Status::Ok);
    }
    ASSERT_EQ(space->open(), Status::Ok);
    const Layout& layout = space->layout();
    Status status = Status::Error;
    PausePoint::hold("space.copy.between_chunks");
    std::thread copier([&] {
        status = space->copy(layout.slot_address(0, Tier::Dram), layout.slot_address(1, Tier::Dram), kSize, kG2G);
    });
    ASSERT_TRUE(PausePoint::wait_until_held("space.copy.between_chunks", 20s));
    EXPECT_EQ(space->detach(2), Status::Ok);
    EXPECT_EQ(space->revoke(1, "died"), Status::Ok);
    EXPECT_EQ(space->detach(1), Status::Ok);
    PausePoint::release("space.copy.between_chunks");
    copier.join();
    EXPECT_EQ(status, Status::NotConnected);
    space->close();
}

TEST(Revocation, detach_waits_for_nobody_and_memory_goes_when_copies_have_left) {
    World world;
    const std::uintptr_t place = world.space->layout().slot_address(1, Tier::Dram);
    std::optional<rcu::ReadGuard> reader;
    std::thread([&] {  // its own guard, which a copy of another object may hold for long
        reader.emplace();
        Side side;
        EXPECT_EQ(world.space->slots().resolve("source", {place, 8}, kAnyMemory, "test", side), Status::Ok);
        std::thread([&] { EXPECT_EQ(world.space->detach(1), Status::Ok); }).join();
        EXPECT_FALSE(world.space->collect());
        byte_at(place) = std::byte{1};  // still mapped
        reader.reset();
    })
        .join();
    EXPECT_TRUE(world.space->collect());
    EXPECT_TRUE(world.space->collect());
}

TEST(Revocation, successor_is_attached_when_copies_have_left) {
    World world;
    std::atomic<bool> attached{false};
    std::thread successor;
    {
        const rcu::ReadGuard reader;
        std::thread([&] { EXPECT_EQ(world.space->detach(1), Status::Ok); }).join();
        successor = std::thread([&] {
            const File file(2 * kMiB);
            EXPECT_EQ(world.space->attach(1, Tier::Dram, file.fd(), 0, 0, 2 * kMiB), Status::Ok);
            attached = true;
        });
        std::this_thread::yield();
        EXPECT_FALSE(attached.load());
    }
    successor.join();
    EXPECT_TRUE(attached.load());
}

// Both objects are closed and reopened at the same addresses while a copy between them stands still.
TEST(Revocation, long_copy_into_another_object_ends_when_that_ends) {
    constexpr std::uint64_t kSize = 80 * kMiB;
    std::array<std::shared_ptr<Space>, 2> spaces;
    for (auto& space : spaces) {
        ASSERT_EQ(Space::make({free_range(kSize), 1, kSize, 0, 0, "object"}, space), Status::Ok);
        const File file(kSize);
        ASSERT_EQ(space->attach(0, Tier::Dram, file.fd(), 0, 0, kSize), Status::Ok);
        ASSERT_EQ(space->activate(0), Status::Ok);
        ASSERT_EQ(space->open(), Status::Ok);
    }
    const std::uintptr_t source = spaces[0]->layout().slot_address(0, Tier::Dram);
    const std::uintptr_t target = spaces[1]->layout().slot_address(0, Tier::Dram);
    PausePoint::hold("space.copy.between_chunks");
    std::thread copier([&] { EXPECT_EQ(spaces[0]->copy(source, target, kSize, kG2H), Status::NotConnected); });
    ASSERT_TRUE(PausePoint::wait_until_held("space.copy.between_chunks", 20s));
    std::thread closer([&] { spaces[1]->close(); });
    while (!spaces[1]->is_closed()) std::this_thread::yield();
    PausePoint::release("space.copy.between_chunks");
    copier.join();
    closer.join();
    spaces[0]->close();
}

}  // namespace
}  // namespace memfabric
