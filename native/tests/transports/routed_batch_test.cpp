// SPDX-License-Identifier: Apache-2.0
//
// Requests of which parts go different ways, and ways that fail.
#include "transports/routed_batch.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/last_error.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/transports/far_memory.h"
#include "tests/transports/faulty.h"
#include "transports/mapped.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

constexpr std::uintptr_t kFarBase = std::uintptr_t{1} << 44;
constexpr std::size_t kBytes = 64 * 1024;

std::byte* far(std::size_t offset) { return reinterpret_cast<std::byte*>(kFarBase + offset); }

Status always() { return Status::Ok; }

// Two far memories and one that is mapped, and a batch that writes a part of the source to each.
struct ThreeWays {
    std::vector<std::byte> source = pattern(3 * kBytes, 1);
    std::vector<std::byte> mapped = std::vector<std::byte>(kBytes);
    FarMemory first{kFarBase, kBytes};
    FarMemory second{kFarBase, kBytes};
    RoutedBatch batch;

    void write(Transport& to_first, Transport& to_second) {
        constexpr std::size_t kPiece = 1024;
        for (std::size_t offset = 0; offset < kBytes; offset += kPiece) {
            batch.add(to_first, Direction::Write, {far(offset), source.data() + offset, kPiece});
            batch.add(to_second, Direction::Write, {far(offset), source.data() + kBytes + offset, kPiece});
            batch.add(MappedTransport::process(), Direction::Write,
                      {mapped.data() + offset, source.data() + 2 * kBytes + offset, kPiece});
        }
    }
    bool arrived(const std::byte* where, std::size_t part) const {
        return std::memcmp(where, source.data() + part * kBytes, kBytes) == 0;
    }
};

TEST(RoutedBatch, splits_by_transport_and_direction_and_moves_all) {
    ThreeWays ways;
    ways.write(ways.first, ways.second);
    EXPECT_EQ(ways.batch.legs().size(), 3U);
    EXPECT_TRUE(ways.batch.synchronous());
    const Outcome outcome = ways.batch.run(always);
    EXPECT_EQ(outcome.status, Status::Ok);
    EXPECT_EQ(outcome.moved_bytes, 3 * kBytes);
    EXPECT_TRUE(ways.arrived(ways.first.data(), 0));
    EXPECT_TRUE(ways.arrived(ways.second.data(), 1));
    EXPECT_TRUE(ways.arrived(ways.mapped.data(), 2));

    RoutedBatch both_directions;
    std::vector<std::byte> back(kBytes);
    both_directions.add(ways.first, Direction::Read, {back.data(), far(0), kBytes});
    both_directions.add(ways.first, Direction::Write, {far(0), ways.source.data() + kBytes, 1});
    EXPECT_EQ(both_directions.legs().size(), 2U);
    EXPECT_EQ(both_directions.run().moved_bytes, kBytes + 1);
}

TEST(RoutedBatch, runs_ways_that_end_on_other_threads_beside_each_other) {
    ThreeWays ways;
    FaultyTransport one(ways.first, {.delay = 30ms, .on_another_thread = true});
    FaultyTransport other(ways.second, {.delay = 30ms, .on_another_thread = true});
    ways.write(one, other);
    EXPECT_FALSE(ways.batch.synchronous());
    EXPECT_EQ(ways.batch.run(always).moved_bytes, 3 * kBytes);
    EXPECT_TRUE(ways.arrived(ways.first.data(), 0));
    EXPECT_TRUE(ways.arrived(ways.second.data(), 1));
}

TEST(RoutedBatch, says_how_much_was_moved_when_one_way_fails_half_way) {
    for (const bool on_another_thread : {false, true}) {
        ThreeWays ways;
        FaultyTransport cut(ways.second, {.fail_at_byte = 5000, .on_another_thread = on_another_thread});
        ways.write(ways.first, cut);
        const Outcome outcome = ways.batch.run(always);
        EXPECT_EQ(outcome.status, Status::NotConnected);
        EXPECT_EQ(outcome.reason, "the line was cut");
        // Behind a way that failed on this thread nothing is begun any more; the others were moving already.
        EXPECT_EQ(outcome.moved_bytes, kBytes + 5000 + (on_another_thread ? kBytes : 0));
        EXPECT_EQ(std::memcmp(ways.second.data(), ways.source.data() + kBytes, 5000), 0);
        EXPECT_EQ(ways.second.data()[5000], std::byte{0});
    }
}

TEST(RoutedBatch, cancels_what_is_stuck_when_it_may_not_go_on) {
    ThreeWays ways;
    FaultyTransport stuck(ways.second, {.on_another_thread = true, .stuck = true});
    ways.write(ways.first, stuck);
    std::atomic<int> asked{0};
    const Outcome outcome =
        ways.batch.run([&] { return ++asked < 5 ? Status::Ok : fail(Status::Timeout, "it took too long"); });
    EXPECT_EQ(outcome.status, Status::Timeout);
    EXPECT_EQ(outcome.reason, "it took too long");
    EXPECT_EQ(outcome.moved_bytes, 2 * kBytes);
    EXPECT_EQ(ways.second.data()[0], std::byte{0});
}

TEST(RoutedBatch, cancels_the_others_when_one_fails) {
    ThreeWays ways;
    FaultyTransport stuck(ways.first, {.on_another_thread = true, .stuck = true});
    FaultyTransport cut(ways.second, {.fail_at_byte = 0});
    ways.write(stuck, cut);
    const Outcome outcome = ways.batch.run(always);  // would never return otherwise
    EXPECT_EQ(outcome.status, Status::NotConnected);
    EXPECT_EQ(outcome.moved_bytes, 0U);
}

TEST(RoutedBatch, gives_long_moves_in_parts_and_asks_between_them) {
    ThreeWays ways;
    FaultyTransport parted(ways.first, {.part_bytes = 10'000});
    RoutedBatch batch;
    batch.add(parted, Direction::Write, {far(0), ways.source.data(), 25'000});
    batch.add(parted, Direction::Write, {far(25'000), ways.source.data() + 25'000, 10'000});
    int asked = 0;
    const Outcome outcome = batch.run([&] { return ++asked == 3 ? fail(Status::NotStarted, "left") : Status::Ok; });
    EXPECT_EQ(outcome.status, Status::NotStarted);
    EXPECT_EQ(outcome.moved_bytes, 30'000U);
    EXPECT_EQ(parted.started(), 3);
    EXPECT_EQ(std::memcmp(ways.first.data(), ways.source.data(), 30'000), 0);
    EXPECT_EQ(ways.first.data()[30'000], std::byte{0});
}

TEST(RoutedBatch, keeps_pieces_whole_that_are_copied_onto_themselves) {
    std::vector<std::byte> memory = pattern(100'000, 4);
    const std::vector<std::byte> before = memory;
    FaultyTransport parted(MappedTransport::process(), {.part_bytes = 10'000});
    RoutedBatch batch;
    batch.add(parted, Direction::Write, {memory.data() + 4096, memory.data(), 50'000});
    EXPECT_EQ(batch.run(always).status, Status::Ok);
    EXPECT_EQ(std::memcmp(memory.data() + 4096, before.data(), 50'000), 0);
}

}  // namespace
}  // namespace memfabric
