// SPDX-License-Identifier: Apache-2.0
//
// Memory files that one engine offers and another one maps: announced, mapped on first use, withdrawn.
#include "transfer/peer_segments.h"

#include <fcntl.h>
#include <sys/eventfd.h>
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
#include "tests/check.h"
#include "tests/descriptor_limits.h"
#include "transfer/peers.h"
#include "transfer/segment_offers.h"

namespace memfabric {
namespace {

using namespace memfabric::testing;

constexpr std::uint64_t kSegmentBytes = 64 * 1024;
constexpr std::uint64_t kThere = 0x5000'0000;  // where the peer has it

// A segment of the "peer", also mapped here to see what arrives.
struct Memory {
    OwnedFd file;
    SharedMapping mapping;
    std::shared_ptr<OwnedFd> shared_file;

    Memory() {
        CHECK_EQ(make_memory_file("test", kSegmentBytes, file), Status::Ok);
        CHECK_EQ(SharedMapping::map(file.get(), kSegmentBytes, true, mapping), Status::Ok);
        shared_file = std::make_shared<OwnedFd>(duplicate());
    }
    OwnedFd duplicate() const { return OwnedFd(fcntl(file.get(), F_DUPFD_CLOEXEC, 0)); }
    ExportedRange range(std::uint32_t id) const { return {id, kThere, kThere + kSegmentBytes, 0, shared_file}; }
};

TEST(peer_segments_are_mapped_where_they_belong) {
    Memory memory;
    PeerSegments segments;
    const rcu::ReadGuard guard;
    CHECK(segments.at(1, kThere, 1) == nullptr);
    REQUIRE_EQ(segments.add({1, kThere, kSegmentBytes - 4096, 4096}, memory.duplicate()), Status::Ok);
    CHECK_EQ(segments.add({1, kThere, kSegmentBytes, 0}, memory.duplicate()), Status::Duplicated);
    CHECK(!take_last_error().empty());
    std::byte* place = segments.at(1, kThere + 10, 20);
    REQUIRE(place != nullptr);
    *place = std::byte{42};
    CHECK(memory.mapping.address()[4096 + 10] == std::byte{42});
    CHECK(segments.at(1, kThere, kSegmentBytes - 4096) == place - 10);
    CHECK(segments.at(1, kThere, kSegmentBytes - 4095) == nullptr);
    CHECK(segments.at(1, kThere - 1, 2) == nullptr);
    CHECK(segments.at(1, kThere + kSegmentBytes, 1) == nullptr);
    CHECK(segments.at(2, kThere, 1) == nullptr);
}

TEST(peer_segments_refuse_what_could_shrink_or_is_too_small) {
    Memory memory;
    PeerSegments segments;
    CHECK_EQ(segments.add({1, kThere, kSegmentBytes + 1, 0}, memory.duplicate()), Status::InvalidParam);
    CHECK_EQ(segments.add({1, kThere, kSegmentBytes, 1}, memory.duplicate()), Status::InvalidParam);
    CHECK_EQ(segments.add({1, kThere, 0, 0}, memory.duplicate()), Status::InvalidParam);
    CHECK_EQ(segments.add({1, kThere, 1, ~std::uint64_t{0}}, memory.duplicate()), Status::InvalidParam);
    OwnedFd unsealed(memfd_create("test", MFD_CLOEXEC));
    CHECK_EQ(ftruncate(unsealed.get(), kSegmentBytes), 0);
    CHECK_EQ(segments.add({1, kThere, kSegmentBytes, 0}, std::move(unsealed)), Status::InvalidParam);
    CHECK(!segments.has(1));
}

TEST(peer_segments_stay_mapped_until_their_users_have_left) {
    Memory memory;
    PeerSegments segments;
    REQUIRE_EQ(segments.add({1, kThere, kSegmentBytes, 0}, memory.duplicate()), Status::Ok);
    {
        const rcu::ReadGuard guard;
        std::byte* place = segments.at(1, kThere, kSegmentBytes);
        REQUIRE(place != nullptr);
        segments.remove(1);
        CHECK(segments.at(1, kThere, 1) == nullptr);
        CHECK(!segments.collect());
        std::memset(place, 7, kSegmentBytes);  // would be a signal, had it been unmapped
    }
    CHECK(segments.collect());
    CHECK(memory.mapping.address()[kSegmentBytes - 1] == std::byte{7});
}

struct Pair {
    OwnedFd offering;
    Peer peer;

    Pair() {
        std::array<int, 2> ends{};
        CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
        offering.reset(ends[0]);
        peer.link.reset(ends[1]);
    }
    Accepted accepted() {
        Packet packet;
        CHECK(receive_packet(peer.link.get(), packet) == Reception::Packet);
        CHECK_EQ(packet.fds.size(), 1U);
        return decode_accepted(packet.bytes).value();
    }
};

TEST(segment_offers_reach_initiators_before_and_after_they_come) {
    Memory memory;
    SegmentOffers offers;
    const std::vector<ExportedRange> first{memory.range(1)};
    const std::vector<ExportedRange> both{memory.range(1), memory.range(2)};
    offers.show(first);
    Pair pair;
    REQUIRE(offers.admit(pair.offering.get(), InstanceId{1}, memory.file.get()));
    CHECK_EQ(pair.accepted().segment_count, 1U);
    REQUIRE(pair.peer.hear());
    CHECK(pair.peer.segments.has(1));
    offers.show(both);
    const rcu::ReadGuard guard;
    CHECK(pair.peer.mapped_at(2, kThere, kSegmentBytes) != nullptr);  // reads its link by itself
    offers.withdraw(1);
    offers.withdraw(3);
    REQUIRE(pair.peer.hear());
    CHECK(!pair.peer.segments.has(1));
    CHECK(pair.peer.segments.has(2));
    offers.dismiss(pair.offering.get());
    pair.offering.reset();
    CHECK(!pair.peer.hear());
}

// An initiator that does not read: what does not fit waits, in order; what is withdrawn meanwhile is not sent at all.
TEST(segment_offers_wait_for_an_initiator_that_does_not_read) {
    Memory memory;
    SegmentOffers offers;
    Pair pair;
    const int few_bytes = 16 * 1024;
    REQUIRE_EQ(setsockopt(pair.offering.get(), SOL_SOCKET, SO_SNDBUF, &few_bytes, sizeof few_bytes), 0);
    REQUIRE(offers.admit(pair.offering.get(), InstanceId{1}, memory.file.get()));
    pair.accepted();
    constexpr std::uint32_t kMany = 800;  // the initiator keeps a descriptor of every second one
    for (std::uint32_t id = 1; id <= kMany; ++id) offers.show(std::vector<ExportedRange>{memory.range(id)});
    for (std::uint32_t id = kMany / 2; id < kMany; ++id) offers.withdraw(id);
    for (int turn = 0; turn < 100 && !pair.peer.segments.has(kMany); ++turn) {
        REQUIRE(pair.peer.hear());
        offers.flush(pair.offering.get());
    }
    REQUIRE(pair.peer.hear());
    CHECK(pair.peer.segments.has(1));
    CHECK(pair.peer.segments.has(kMany / 2 - 1));
    CHECK(!pair.peer.segments.has(kMany / 2));
    CHECK(!pair.peer.segments.has(kMany - 1));
    CHECK(pair.peer.segments.has(kMany));
}

// Descriptors in flight are limited for all sockets of a user together, so no socket says when there are fewer.
TEST(segment_offers_wait_while_too_many_descriptors_are_in_flight) {
    Memory memory;
    SegmentOffers offers;
    Pair pair;
    const OwnedFd wake_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    offers.notify_when_crowded(wake_fd.get());
    constexpr std::uint32_t kMany = 50;
    std::thread sender([&] {
        const PlainUserThread plain;
        const FewDescriptorsInFlight few;
        CHECK(offers.admit(pair.offering.get(), InstanceId{1}, memory.file.get()));
        for (std::uint32_t id = 1; id <= kMany; ++id) offers.show(std::vector<ExportedRange>{memory.range(id)});
        CHECK(offers.retry());
        Packet packet;
        CHECK(receive_packet(pair.peer.link.get(), packet) == Reception::Nothing);
    });
    sender.join();
    eventfd_t wakeups = 0;
    CHECK_EQ(eventfd_read(wake_fd.get(), &wakeups), 0);
    CHECK(!offers.retry());
    CHECK_EQ(pair.accepted().segment_count, 0U);
    REQUIRE(pair.peer.hear());
    CHECK(pair.peer.segments.has(1));
    CHECK(pair.peer.segments.has(kMany));
}

// The initiator has no descriptor left when a segment is announced: it goes on without it.
TEST(peer_segments_that_lost_their_descriptor_are_known_but_not_mapped) {
    if (kSanitizerNeedsDescriptors) return;
    Memory memory;
    SegmentOffers offers;
    Pair pair;
    REQUIRE(offers.admit(pair.offering.get(), InstanceId{1}, memory.file.get()));
    pair.accepted();
    offers.show(std::vector<ExportedRange>{memory.range(1)});
    {
        const NoDescriptorLeft none;
        REQUIRE(pair.peer.hear());
    }
    const rcu::ReadGuard guard;
    CHECK(pair.peer.segments.has(1));
    CHECK_EQ(pair.peer.segments.missed(), 1U);
    CHECK(pair.peer.mapped_at(1, kThere, 1) == nullptr);
    offers.show(std::vector<ExportedRange>{memory.range(1), memory.range(2)});
    CHECK(pair.peer.mapped_at(2, kThere, 1) != nullptr);
    offers.withdraw(1);
    REQUIRE(pair.peer.hear());
    CHECK(!pair.peer.segments.has(1));
}

TEST(peer_hangs_up_on_nonsense) {
    Pair pair;
    CHECK(send_packet(pair.offering.get(), encode(Hello{}), {}) == Sending::Sent);
    CHECK(!pair.peer.hear());
    CHECK(!pair.peer.hear());
    pair.peer.hang_up();
    CHECK(!pair.peer.hear());
    CHECK(pair.peer.gone.load());
}

}  // namespace
}  // namespace memfabric
