// SPDX-License-Identifier: Apache-2.0
//
// Memory files that one engine offers and another one maps: announced, mapped on first use, withdrawn.
#include "transfer/peer_segments.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "memory/memfd.h"
#include "sync/rcu.h"
#include "tests/assertions.h"
#include "tests/descriptor_limits.h"
#include "transfer/peers.h"
#include "transfer/registrations/segment_offers.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

constexpr std::uint64_t kSegmentBytes = 64 * 1024;
constexpr std::uint64_t kThere = 0x5000'0000;  // where the peer has it

// A segment of the "peer", also mapped here to see what arrives.
struct Memory {
    OwnedFd file;
    SharedMapping mapping;
    std::shared_ptr<OwnedFd> shared_file;

    Memory() {
        EXPECT_EQ(make_memory_file("test", kSegmentBytes, file), Status::Ok);
        EXPECT_EQ(SharedMapping::map(file.get(), kSegmentBytes, true, mapping), Status::Ok);
        shared_file = std::make_shared<OwnedFd>(duplicate());
    }
    OwnedFd duplicate() const { return OwnedFd(fcntl(file.get(), F_DUPFD_CLOEXEC, 0)); }
    ExportedRange range(std::uint32_t id) const { return {id, kThere, kThere + kSegmentBytes, 0, shared_file}; }
};

TEST(PeerSegments, are_mapped_where_they_belong) {
    Memory memory;
    PeerSegments segments;
    const rcu::ReadGuard guard;
    EXPECT_EQ(segments.at(1, kThere, 1), nullptr);
    ASSERT_EQ(segments.add({1, kThere, kSegmentBytes - 4096, 4096}, memory.duplicate()), Status::Ok);
    EXPECT_EQ(segments.add({1, kThere, kSegmentBytes, 0}, memory.duplicate()), Status::Duplicated);
    EXPECT_FALSE(take_last_error().empty());
    std::byte* place = segments.at(1, kThere + 10, 20);
    ASSERT_NE(place, nullptr);
    *place = std::byte{42};
    EXPECT_EQ(memory.mapping.address()[4096 + 10], std::byte{42});
    EXPECT_EQ(segments.at(1, kThere, kSegmentBytes - 4096), place - 10);
    EXPECT_EQ(segments.at(1, kThere, kSegmentBytes - 4095), nullptr);
    EXPECT_EQ(segments.at(1, kThere - 1, 2), nullptr);
    EXPECT_EQ(segments.at(1, kThere + kSegmentBytes, 1), nullptr);
    EXPECT_EQ(segments.at(2, kThere, 1), nullptr);
}

TEST(PeerSegments, refuse_what_could_shrink_or_is_too_small) {
    Memory memory;
    PeerSegments segments;
    EXPECT_EQ(segments.add({1, kThere, kSegmentBytes + 1, 0}, memory.duplicate()), Status::InvalidParam);
    EXPECT_EQ(segments.add({1, kThere, kSegmentBytes, 1}, memory.duplicate()), Status::InvalidParam);
    EXPECT_EQ(segments.add({1, kThere, 0, 0}, memory.duplicate()), Status::InvalidParam);
    EXPECT_EQ(segments.add({1, kThere, 1, ~std::uint64_t{0}}, memory.duplicate()), Status::InvalidParam);
    OwnedFd unsealed(memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(unsealed.get(), kSegmentBytes), 0);
    EXPECT_EQ(segments.add({1, kThere, kSegmentBytes, 0}, std::move(unsealed)), Status::InvalidParam);
    EXPECT_FALSE(segments.has(1));
}

TEST(PeerSegments, stay_mapped_until_their_users_have_left) {
    Memory memory;
    PeerSegments segments;
    ASSERT_EQ(segments.add({1, kThere, kSegmentBytes, 0}, memory.duplicate()), Status::Ok);
    {
        const rcu::ReadGuard guard;
        std::byte* place = segments.at(1, kThere, kSegmentBytes);
        ASSERT_NE(place, nullptr);
        segments.remove(1);
        EXPECT_EQ(segments.at(1, kThere, 1), nullptr);
        EXPECT_FALSE(segments.collect());
        std::memset(place, 7, kSegmentBytes);  // would be a signal, had it been unmapped
    }
    EXPECT_TRUE(segments.collect());
    EXPECT_EQ(memory.mapping.address()[kSegmentBytes - 1], std::byte{7});
}

struct Pair {
    std::shared_ptr<Link> offering;
    Peer peer;
    int offering_fd = -1;  // the link's

    Pair() {
        std::array<int, 2> ends{};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
        offering = std::make_shared<Link>(Link::Kind::Unix, OwnedFd(ends[0]));
        peer.link = std::make_shared<Link>(Link::Kind::Unix, OwnedFd(ends[1]));
        offering_fd = ends[0];
    }
    Accepted accepted() {
        Packet packet;
        EXPECT_EQ(peer.link->receive(packet), Reception::Packet);
        EXPECT_EQ(packet.fds.size(), 1U);
        return decode_accepted(packet.bytes).value();
    }
};

TEST(SegmentOffers, reach_initiators_before_and_after_they_come) {
    Memory memory;
    SegmentOffers offers;
    const std::vector<ExportedRange> first{memory.range(1)};
    const std::vector<ExportedRange> both{memory.range(1), memory.range(2)};
    offers.show(first);
    Pair pair;
    ASSERT_TRUE(offers.admit(pair.offering, InstanceId{1}, Secret{}, memory.file.get()));
    EXPECT_EQ(pair.accepted().segment_count, 1U);
    ASSERT_EQ(pair.peer.hear(), Peer::Heard::All);
    EXPECT_TRUE(pair.peer.segments.has(1));
    offers.show(both);
    const rcu::ReadGuard guard;
    EXPECT_NE(pair.peer.mapped_at(2, kThere, kSegmentBytes), nullptr);  // reads its link by itself
    offers.withdraw(1);
    offers.withdraw(3);
    ASSERT_EQ(pair.peer.hear(), Peer::Heard::All);
    EXPECT_FALSE(pair.peer.segments.has(1));
    EXPECT_TRUE(pair.peer.segments.has(2));
    offers.dismiss(*pair.offering);
    pair.offering->close();
    EXPECT_EQ(pair.peer.hear(), Peer::Heard::End);
}

// An initiator that does not read: what does not fit waits, in order; what is withdrawn meanwhile is not sent at all.
TEST(SegmentOffers, wait_for_an_initiator_that_does_not_read) {
    Memory memory;
    SegmentOffers offers;
    Pair pair;
    const int few_bytes = 16 * 1024;
    ASSERT_EQ(setsockopt(pair.offering_fd, SOL_SOCKET, SO_SNDBUF, &few_bytes, sizeof few_bytes), 0);
    ASSERT_TRUE(offers.admit(pair.offering, InstanceId{1}, Secret{}, memory.file.get()));
    pair.accepted();
    constexpr std::uint32_t kMany = 800;  // the initiator keeps a descriptor of every second one
    for (std::uint32_t id = 1; id <= kMany; ++id) offers.show(std::vector<ExportedRange>{memory.range(id)});
    for (std::uint32_t id = kMany / 2; id < kMany; ++id) offers.withdraw(id);
    for (int turn = 0; turn < 100 && !pair.peer.segments.has(kMany); ++turn) {
        ASSERT_NE(pair.peer.hear(), Peer::Heard::End);
        offers.flush(*pair.offering);
    }
    ASSERT_EQ(pair.peer.hear(), Peer::Heard::All);
    EXPECT_TRUE(pair.peer.segments.has(1));
    EXPECT_TRUE(pair.peer.segments.has(kMany / 2 - 1));
    EXPECT_FALSE(pair.peer.segments.has(kMany / 2));
    EXPECT_FALSE(pair.peer.segments.has(kMany - 1));
    EXPECT_TRUE(pair.peer.segments.has(kMany));
}

// Descriptors in flight are limited for all sockets of a user together, so no socket says when there are fewer.
TEST(SegmentOffers, wait_while_too_many_descriptors_are_in_flight) {
    Memory memory;
    SegmentOffers offers;
    Pair pair;
    std::shared_ptr<Endpoint> endpoint;
    ASSERT_EQ(Endpoint::open({}, Endpoint::kEverybodyMayStay, endpoint), Status::Ok);
    offers.wake_when_crowded(endpoint);
    constexpr std::uint32_t kMany = 50;
    std::thread sender([&] {
        const PlainUserThread plain;
        const FewDescriptorsInFlight few;
        EXPECT_TRUE(offers.admit(pair.offering, InstanceId{1}, Secret{}, memory.file.get()));
        for (std::uint32_t id = 1; id <= kMany; ++id) offers.show(std::vector<ExportedRange>{memory.range(id)});
        EXPECT_TRUE(offers.retry());
        Packet packet;
        EXPECT_EQ(pair.peer.link->receive(packet), Reception::Nothing);
    });
    sender.join();
    Endpoint::News news;
    endpoint->wait(std::chrono::steady_clock::now(), news);
    EXPECT_TRUE(news.woken);
    EXPECT_FALSE(offers.retry());
    EXPECT_EQ(pair.accepted().segment_count, 0U);
    ASSERT_EQ(pair.peer.hear(), Peer::Heard::All);
    EXPECT_TRUE(pair.peer.segments.has(1));
    EXPECT_TRUE(pair.peer.segments.has(kMany));
}

// The initiator has no descriptor left when a segment is announced: it goes on without it.
TEST(PeerSegments, that_lost_their_descriptor_are_known_but_not_mapped) {
    if (kSanitizerNeedsDescriptors) GTEST_SKIP() << kNoneToSpare;
    Memory memory;
    SegmentOffers offers;
    Pair pair;
    ASSERT_TRUE(offers.admit(pair.offering, InstanceId{1}, Secret{}, memory.file.get()));
    pair.accepted();
    offers.show(std::vector<ExportedRange>{memory.range(1)});
    {
        const NoDescriptorLeft none;
        ASSERT_EQ(pair.peer.hear(), Peer::Heard::All);
    }
    const rcu::ReadGuard guard;
    EXPECT_TRUE(pair.peer.segments.has(1));
    EXPECT_EQ(pair.peer.segments.missed(), 1U);
    EXPECT_EQ(pair.peer.mapped_at(1, kThere, 1), nullptr);
    offers.show(std::vector<ExportedRange>{memory.range(1), memory.range(2)});
    EXPECT_NE(pair.peer.mapped_at(2, kThere, 1), nullptr);
    offers.withdraw(1);
    ASSERT_EQ(pair.peer.hear(), Peer::Heard::All);
    EXPECT_FALSE(pair.peer.segments.has(1));
}

TEST(Peer, hangs_up_on_nonsense) {
    Pair pair;
    EXPECT_EQ(pair.offering->send(encode(Hello{})), Sending::Sent);
    EXPECT_EQ(pair.peer.hear(), Peer::Heard::End);
    EXPECT_EQ(pair.peer.hear(), Peer::Heard::End);
    pair.peer.hang_up();
    EXPECT_EQ(pair.peer.hear(), Peer::Heard::End);
    EXPECT_TRUE(pair.peer.gone.load());
}

TEST(PeerSegments, of_a_peer_that_does_not_stop_talking_are_taken_in_turns) {
    Pair pair;
    constexpr std::uint32_t kMany = 100;
    for (std::uint32_t id = 1; id <= kMany; ++id) {
        ASSERT_EQ(pair.offering->send(encode(Withdrawn{id})), Sending::Sent);
    }
    EXPECT_EQ(pair.peer.hear(), Peer::Heard::Some);
    EXPECT_EQ(pair.peer.hear(), Peer::Heard::All);
}

}  // namespace
}  // namespace memfabric
