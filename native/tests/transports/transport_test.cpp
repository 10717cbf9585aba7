// SPDX-License-Identifier: Apache-2.0
//
// What every transport has to do: one suite for all of them.
#include "transports/transport.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "endpoint/instance_id.h"
#include "tcp/exposure.h"
#include "tcp/listener.h"
#include "tcp/served_memory.h"
#include "tcp/transport.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/tls/tls_identity.h"
#include "tests/transports/far_memory.h"
#include "tests/transports/faulty.h"
#include "tests/transports/kernel_route.h"
#include "tests/ucx/ucx_library.h"
#include "transports/mapped.h"
#include "transports/peer_process.h"
#include "ucx/served_memory.h"
#include "ucx/transport.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

constexpr std::size_t kPeerBytes = std::size_t{9} << 20;
constexpr std::uint64_t kNowhere = 4096;  // nothing is mapped there

// A peer with memory, and a way to it.
class PeerMemory {
public:
    virtual ~PeerMemory() = default;
    virtual Transport& transport() = 0;
    virtual std::byte* data() = 0;  // the peer's memory, by its own addresses and as this process sees it
    virtual void end_peer() {}
    virtual const char* end_is_called() const { return "has ended"; }
};

class MappedPeer final : public PeerMemory {
public:
    Transport& transport() override { return MappedTransport::process(); }
    std::byte* data() override { return memory_.data(); }

private:
    std::vector<std::byte> memory_ = std::vector<std::byte>(kPeerBytes);
};

class ProcessPeer final : public PeerMemory {
public:
    Transport& transport() override { return transport_; }
    std::byte* data() override { return child_.data(); }
    void end_peer() override {
        child_.end();
        child_.life.store(0x40000000);  // what the kernel leaves of a dead owner
    }

private:
    ChildMemory child_{kPeerBytes};
    PeerProcessTransport transport_{child_.process()};
};

// Memory behind a real connection; that it is this process's changes nothing on the way.
class TcpPeer : public PeerMemory {
public:
    explicit TcpPeer(const std::shared_ptr<const tls::Identity>& identity = nullptr) {
        Connect connect;
        fill_random(connect.target);
        fill_random(connect.secret);
        served_ = std::make_unique<tcp::ServedMemory>(connect, exposed_);
        require_ok(tcp::Listener::open({"127.0.0.1", 0}, 0, identity, listener_));
        tcp::Target target;
        require_ok(tcp::Target::make(listener_->address(), connect, identity, target));
        transport_ = std::make_unique<tcp::TcpTransport>(target);
    }
    Transport& transport() override { return *transport_; }
    std::byte* data() override { return exposed_->memory.data(); }
    void end_peer() override {
        served_.reset();
        listener_.reset();
    }
    const char* end_is_called() const override { return "cannot be made: Connection refused"; }

private:
    struct Exposed final : tcp::Exposure {
        std::uint64_t generation() const noexcept override { return 1; }
        bool covers(std::uint64_t address, std::uint64_t size_bytes) const noexcept override {
            const auto start = reinterpret_cast<std::uint64_t>(memory.data());
            return address == kNowhere || (address >= start && size_bytes <= start + kPeerBytes - address);
        }
        std::vector<std::byte> memory = std::vector<std::byte>(kPeerBytes);
    };

    const std::shared_ptr<Exposed> exposed_ = std::make_shared<Exposed>();
    std::unique_ptr<tcp::ServedMemory> served_;
    std::unique_ptr<tcp::Listener> listener_;
    std::unique_ptr<tcp::TcpTransport> transport_;
};

class TlsPeer final : public TcpPeer {
public:
    TlsPeer() : TcpPeer(good_identity()) {}
};

// The same with UCX: another worker of this process, behind a connection.
class UcxPeer final : public PeerMemory {
public:
    UcxPeer() {
        require_ok(ucx::ServedMemory::serve(memory_.data(), memory_.size(), ucx_over_loopback(), served_));
        require_ok(ucx::UcxTransport::open(served_->for_initiators(), ucx_over_loopback(), transport_));
    }
    Transport& transport() override { return *transport_; }
    std::byte* data() override { return memory_.data(); }
    void end_peer() override { served_.reset(); }
    const char* end_is_called() const override { return "the connection to it cannot be made, or was lost"; }

private:
    std::vector<std::byte> memory_ = std::vector<std::byte>(kPeerBytes);
    std::unique_ptr<ucx::ServedMemory> served_;
    std::unique_ptr<ucx::UcxTransport> transport_;
};

template <typename Inner>
class OtherThreadPeer final : public PeerMemory {
public:
    Transport& transport() override { return transport_; }
    std::byte* data() override { return inner_.data(); }
    void end_peer() override { inner_.end_peer(); }
    const char* end_is_called() const override { return inner_.end_is_called(); }

private:
    Inner inner_;
    FaultyTransport transport_{inner_.transport(), {.on_another_thread = true}};
};

struct Way {
    const char* name;
    std::function<std::unique_ptr<PeerMemory>()> make;
    std::function<std::string()> obstacle = [] { return std::string(); };  // what this machine lacks for it
};

// Emulators lack process_vm_*.
std::string no_kernel_route() { return kernel_moves_memory() ? "" : kNoKernelRoute; }

class TransportConformance : public ::testing::TestWithParam<Way> {
protected:
    void SetUp() override {
        if (const std::string obstacle = GetParam().obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
        route_ = GetParam().make();
    }

    Transport& transport() { return route_->transport(); }
    std::byte* peer(std::size_t offset) { return route_->data() + offset; }

    Outcome move(Direction direction, const std::vector<Piece>& pieces) {
        std::size_t total_bytes = 0;
        for (const Piece& piece : pieces) total_bytes += piece.size_bytes;
        Completion completion;
        transport().start({direction, pieces, total_bytes}, completion);
        EXPECT_TRUE(completion.done() || !transport().traits().synchronous);
        transport().finish(completion);
        return completion.outcome();
    }

    std::unique_ptr<PeerMemory> route_;
};

TEST_P(TransportConformance, moves_pieces_of_every_size_both_ways) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{300'001}, kPeerBytes}) {
        const std::vector<std::byte> source = pattern(size, 3);
        const Outcome written = move(Direction::Write, {{peer(0), source.data(), size}});
        EXPECT_EQ(written.status, Status::Ok);
        EXPECT_EQ(written.moved_bytes, size);
        EXPECT_EQ(written.reason, "");
        EXPECT_EQ(std::memcmp(peer(0), source.data(), size), 0);
        std::vector<std::byte> back(size);
        EXPECT_EQ(move(Direction::Read, {{back.data(), peer(0), size}}).moved_bytes, size);
        EXPECT_TRUE(same_bytes(back, source));
    }
}

TEST_P(TransportConformance, moves_many_pieces_in_any_order) {
    constexpr std::size_t kCount = 5000;
    constexpr std::size_t kPiece = 777;
    const std::vector<std::byte> source = pattern(kCount * kPiece, 5);
    std::vector<std::byte> back(source.size());
    std::vector<Piece> out;
    std::vector<Piece> in;
    for (std::size_t i = 0; i < kCount; ++i) {
        std::byte* place = peer((kCount - 1 - i) * kPiece);
        out.push_back({place, source.data() + i * kPiece, kPiece});
        in.push_back({back.data() + i * kPiece, place, kPiece});
    }
    EXPECT_EQ(move(Direction::Write, out).moved_bytes, source.size());
    EXPECT_EQ(move(Direction::Read, in).status, Status::Ok);
    EXPECT_TRUE(same_bytes(back, source));
}

TEST_P(TransportConformance, serves_several_threads_at_a_time) {
    constexpr std::size_t kThreads = 4;
    constexpr std::size_t kPartBytes = 600'000;
    std::vector<std::thread> threads;
    for (std::size_t number = 0; number < kThreads; ++number) {
        threads.emplace_back([&, number] {
            for (unsigned round = 0; round < 20; ++round) {
                const std::vector<std::byte> source = pattern(kPartBytes, round + number * 100);
                std::vector<std::byte> back(kPartBytes);
                EXPECT_EQ(move(Direction::Write, {{peer(number * kPartBytes), source.data(), kPartBytes}}).status,
                          Status::Ok);
                EXPECT_EQ(move(Direction::Read, {{back.data(), peer(number * kPartBytes), kPartBytes}}).status,
                          Status::Ok);
                EXPECT_TRUE(same_bytes(back, source));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TEST_P(TransportConformance, touches_nothing_beside_the_pieces) {
    std::memset(peer(0), 0x11, 3 * 4096);
    const std::vector<std::byte> source(4096, std::byte{0x22});
    EXPECT_EQ(move(Direction::Write, {{peer(4096 + 1), source.data(), 4094}}).status, Status::Ok);
    EXPECT_EQ(*peer(4096), std::byte{0x11});
    EXPECT_EQ(*peer(4096 + 1), std::byte{0x22});
    EXPECT_EQ(*peer(2 * 4096 - 2), std::byte{0x22});
    EXPECT_EQ(*peer(2 * 4096 - 1), std::byte{0x11});
}

TEST_P(TransportConformance, cancelling_what_has_ended_changes_nothing) {
    const std::vector<std::byte> source = pattern(4096, 9);
    Completion completion;
    const Piece piece{peer(0), source.data(), source.size()};
    transport().start({Direction::Write, {&piece, 1}, source.size()}, completion);
    transport().finish(completion);
    transport().cancel(completion);
    EXPECT_EQ(completion.outcome().status, Status::Ok);
    EXPECT_EQ(std::memcmp(peer(0), source.data(), source.size()), 0);
}

TEST_P(TransportConformance, says_what_is_not_mapped_and_how_much_was_moved) {
    if (transport().traits().addresses_are_ours) return;  // whoever calls has proved that they are mapped
    std::vector<std::byte> own(1 << 20);
    std::byte* nowhere = reinterpret_cast<std::byte*>(kNowhere);
    const Outcome remote = move(Direction::Write, {{nowhere, own.data(), 64}});
    EXPECT_EQ(remote.status, Status::InvalidParam);
    EXPECT_EQ(remote.moved_bytes, 0U);
    EXPECT_TRUE(contains(remote.reason, "memory that is registered there"));
    const Outcome ours = move(Direction::Write, {{peer(0), nowhere, 64}});
    EXPECT_EQ(ours.status, Status::InvalidParam);
    EXPECT_NE(ours.reason.find("buffer of this process"), std::string::npos) << ours.reason;
    own.assign(own.size(), std::byte{0x33});
    std::memset(peer(0), 0x44, 4096);
    const Outcome part = move(Direction::Write, {{peer(0), own.data(), 4096}, {nowhere, own.data(), 64}});
    EXPECT_EQ(part.status, Status::InvalidParam);
    const bool untouched = std::memcmp(peer(0), std::vector<std::byte>(4096, std::byte{0x44}).data(), 4096) == 0;
    EXPECT_TRUE(part.moved_bytes == (untouched ? 0U : 4096U) || part.may_have_touched_more);
}

// Own memory that is there, and is not meant for it: small and large pieces, from their start or from somewhere inside.
TEST_P(TransportConformance, refuses_own_memory_that_must_not_be_used_so) {
    if (transport().traits().addresses_are_ours) return;
    constexpr std::size_t kOwnBytes = 64 * 4096;
    auto* const own = static_cast<std::byte*>(mmap(nullptr, kOwnBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(own, MAP_FAILED);
    std::memset(peer(0), 0x55, kOwnBytes);
    for (const std::size_t size : {std::size_t{64}, kOwnBytes}) {
        EXPECT_EQ(move(Direction::Write, {{peer(0), own, size}}).status, Status::Ok);
        const Outcome read = move(Direction::Read, {{own, peer(0), size}});
        EXPECT_EQ(read.status, Status::InvalidParam);
        EXPECT_NE(read.reason.find("buffer of this process"), std::string::npos) << read.reason;
        EXPECT_EQ(own[0], std::byte{0});
    }
    ASSERT_EQ(mprotect(own + kOwnBytes / 2, kOwnBytes / 2, PROT_NONE), 0);
    for (const std::size_t size : {std::size_t{64}, kOwnBytes / 2}) {
        const Outcome written = move(Direction::Write, {{peer(0), own + kOwnBytes / 2 - size / 2, size}});
        EXPECT_EQ(written.status, Status::InvalidParam);
        EXPECT_NE(written.reason.find("buffer of this process"), std::string::npos) << written.reason;
    }
    munmap(own, kOwnBytes);
}

TEST_P(TransportConformance, fails_when_the_peer_is_gone) {
    if (transport().traits().addresses_are_ours) return;  // memory outlives the process that made it
    std::byte byte{9};
    EXPECT_EQ(move(Direction::Write, {{peer(0), &byte, 1}}).status, Status::Ok);
    route_->end_peer();
    const Outcome outcome = move(Direction::Write, {{peer(0), &byte, 1}});
    EXPECT_EQ(outcome.status, Status::NotConnected);
    EXPECT_EQ(outcome.moved_bytes, 0U);
    EXPECT_TRUE(contains(outcome.reason, route_->end_is_called()));
}

template <typename Peer>
std::unique_ptr<PeerMemory> make() {
    return std::make_unique<Peer>();
}

INSTANTIATE_TEST_SUITE_P(
    AllTransports, TransportConformance,
    ::testing::Values(Way{"mapped", make<MappedPeer>}, Way{"peer_process", make<ProcessPeer>, no_kernel_route},
                      Way{"tcp", make<TcpPeer>}, Way{"tcp_with_tls", make<TlsPeer>, no_openssl},
                      Way{"ucx", make<UcxPeer>, load_ucx},
                      Way{"mapped_on_another_thread", make<OtherThreadPeer<MappedPeer>>},
                      Way{"peer_process_on_another_thread", make<OtherThreadPeer<ProcessPeer>>, no_kernel_route}),
    [](const ::testing::TestParamInfo<Way>& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace memfabric
