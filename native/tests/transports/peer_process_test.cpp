// SPDX-License-Identifier: Apache-2.0
//
// How the way into another process learns that the process is gone; the rest is every transport's (transport_test.cpp).
#include "transports/peer_process.h"

#include <cstddef>

#include "tests/assertions.h"
#include "tests/transports/far_memory.h"
#include "tests/transports/kernel_route.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

Outcome write_byte(const PeerProcessTransport& transport, std::byte* place) {
    const std::byte byte{9};
    const Piece piece{place, &byte, 1};
    return transport.run({Direction::Write, {&piece, 1}, 1});
}

TEST(PeerProcess, is_not_entered_once_its_life_word_is_wiped) {
    ChildMemory child(4096);
    child.life.store(0x40000000);  // what the kernel leaves of a dead owner; the number may be somebody else's
    const Outcome outcome = write_byte(PeerProcessTransport(child.process()), child.data());
    EXPECT_EQ(outcome.status, Status::NotConnected);
    EXPECT_EQ(child.data()[0], std::byte{0});
}

TEST(PeerProcess, is_gone_when_the_kernel_says_so) {
    if (!kernel_moves_memory()) GTEST_SKIP() << kNoKernelRoute;
    ChildMemory child(4096);
    const PeerProcessTransport transport(child.process());
    EXPECT_EQ(write_byte(transport, child.data()).status, Status::Ok);
    child.end();
    const Outcome outcome = write_byte(transport, child.data());
    EXPECT_EQ(outcome.status, Status::NotConnected);
    EXPECT_TRUE(contains(outcome.reason, "has ended"));
}

}  // namespace
}  // namespace memfabric
