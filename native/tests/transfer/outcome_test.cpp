// SPDX-License-Identifier: Apache-2.0
//
// The code of a transfer whose peer died: PartialFailed where memory that somebody has was or may have been changed.
#include "transfer/outcome.h"

#include <atomic>
#include <cstdint>

#include "tests/assertions.h"
#include "transfer/peers.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

constexpr std::size_t kTotal = 100;

// Its process has ended: nobody holds the word of its life.
struct DeadPeer {
    std::atomic<std::uint32_t> life{0};
    Peer peer;

    DeadPeer() {
        peer.session = "127.0.0.1:1";
        peer.process = {4711, &life};
    }
    Status conclude(Direction direction, const Outcome& outcome) const {
        return memfabric::conclude(peer, direction, outcome, kTotal);
    }
};

TEST(TransferOutcome, of_a_read_from_who_died_is_undefined_as_soon_as_a_byte_has_come) {
    const DeadPeer dead;
    EXPECT_EQ(dead.conclude(Direction::Read, {Status::Ok, kTotal, {}}), Status::PartialFailed);
    EXPECT_TRUE(says("its process (4711) ended during the transfer; 100 of 100 bytes were moved"));
    EXPECT_EQ(dead.conclude(Direction::Read, {Status::NotConnected, 1, "gone"}), Status::PartialFailed);
    EXPECT_EQ(dead.conclude(Direction::Read, {Status::NotConnected, 0, "gone", true}), Status::PartialFailed);
    EXPECT_EQ(dead.conclude(Direction::Read, {Status::NotConnected, 0, "gone"}), Status::NotConnected);
    EXPECT_TRUE(says("its process (4711) has ended"));
}

TEST(TransferOutcome, of_a_write_into_who_died_is_gone_with_it) {
    const DeadPeer dead;
    EXPECT_EQ(dead.conclude(Direction::Write, {Status::Ok, kTotal, {}}), Status::NotConnected);
    EXPECT_EQ(dead.conclude(Direction::Write, {Status::NotConnected, 1, "gone"}), Status::PartialFailed);
}

TEST(TransferOutcome, of_a_write_whose_source_went_away_is_undefined_there) {
    DeadPeer alive;
    alive.life = 4711;
    EXPECT_EQ(alive.conclude(Direction::Write, {Status::Ok, kTotal, {}}), Status::Ok);
    EXPECT_EQ(alive.conclude(Direction::Write, {Status::NotConnected, kTotal, "rank 1 died"}), Status::PartialFailed);
    EXPECT_TRUE(says("rank 1 died; 100 of 100 bytes were moved"));
}

}  // namespace
}  // namespace memfabric
