// SPDX-License-Identifier: Apache-2.0
//
// What was given up does not arrive later: between both ends is a network that can hold bytes back.
#include "tcp/fence.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/owned_fd.h"
#include "endpoint/instance_id.h"
#include "tcp/given_up.h"
#include "tcp/listener.h"
#include "tcp/served_memory.h"
#include "tcp/transport.h"
#include "tests/assertions.h"
#include "transports/routed_batch.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

constexpr std::size_t kBytes = 16 << 10;
constexpr auto kStalled = 50ms;
constexpr auto kLong = 20s;

// Passes the bytes of each connection on, until it is told to keep what goes to the target.
class SlowNetwork {
public:
    explicit SlowNetwork(std::uint16_t target_port) : target_port_(target_port) {
        listening_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address = loopback(0);
        require(bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        require(listen(listening_.get(), 16) == 0);
        socklen_t address_bytes = sizeof address;
        require(getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes) == 0);
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] { pass_on(); });
    }
    ~SlowNetwork() {
        stopping_ = true;
        thread_.join();
    }

    std::uint16_t port() const { return port_; }
    void hold() {  // what the connections of now carry; later ones are quick
        holding_ = true;
        while (!holds_) std::this_thread::yield();
    }
    void release() { holding_ = false; }
    // Ends the connections that are held for their initiators, as a firewall or a stranger in between can.
    void cut() { cutting_ = true; }
    // What was held has reached the target, which has answered or has ended the connection.
    bool all_delivered() const { return delivered_; }
    std::size_t held_bytes() const { return held_bytes_; }

private:
    struct Pair {
        OwnedFd initiator;
        OwnedFd target;
        bool slow = false;
        std::string held;
    };

    static sockaddr_in loopback(std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        return address;
    }

    void pass_on() {
        std::vector<Pair> pairs;
        bool was_holding = false;
        while (!stopping_) {
            accept_one(pairs);
            const bool holding = holding_;
            for (Pair& pair : pairs) {
                if (holding && !was_holding) pair.slow = true;
                forward(pair, holding);
            }
            was_holding = holding;
            holds_ = holding;
        }
    }

    static void end(OwnedFd& connection) {  // with a reset
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        connection.reset();
    }

    void accept_one(std::vector<Pair>& pairs) {
        pollfd waited{listening_.get(), POLLIN, 0};
        if (poll(&waited, 1, 1) != 1) return;
        Pair pair{OwnedFd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                  OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
                  {},
                  {}};
        sockaddr_in address = loopback(target_port_);
        if (connect(pair.target.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
            pairs.push_back(std::move(pair));
        }
    }

    void forward(Pair& pair, bool holding) {
        std::array<char, 65536> buffer;
        if (pair.slow && cutting_) end(pair.initiator);
        for (ssize_t got;
             pair.initiator && (got = recv(pair.initiator.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)) != -1;) {
            if (got == 0) {  // a network does not tell the target before it has delivered
                pair.initiator.reset();
                if (!pair.slow) pair.target.reset();
                break;
            }
            if (pair.slow && holding) {
                pair.held.append(buffer.data(), static_cast<std::size_t>(got));
                held_bytes_ += static_cast<std::size_t>(got);
            } else if (pair.target) {
                send(pair.target.get(), buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
            }
        }
        if (pair.slow && !holding && !pair.held.empty()) {
            send(pair.target.get(), pair.held.data(), pair.held.size(), MSG_NOSIGNAL);
            pair.held.clear();
        }
        if (!pair.target) return;
        const ssize_t got = recv(pair.target.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got == -1 && errno == EAGAIN) return;
        if (got > 0 && pair.initiator) {
            send(pair.initiator.get(), buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL);
        }
        if (pair.slow && !holding) delivered_ = true;
        if (got <= 0 && !holding) pair.target.reset();
    }

    const std::uint16_t target_port_;
    OwnedFd listening_;
    std::uint16_t port_ = 0;
    std::atomic<bool> holding_{false};  // is wanted
    std::atomic<bool> holds_{false};    // is done
    std::atomic<bool> cutting_{false};
    std::atomic<bool> delivered_{false};
    std::atomic<std::size_t> held_bytes_{0};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

struct Exposed final : tcp::Exposure {
    std::uint64_t generation() const noexcept override { return 1; }
    bool covers(std::uint64_t, std::uint64_t) const noexcept override { return true; }
    std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
};

class TcpFence : public ::testing::Test {
protected:
    TcpFence() {
        fill_random(connect_.target);
        fill_random(connect_.secret);
        served_ = std::make_unique<tcp::ServedMemory>(connect_, exposed_);
        require_ok(tcp::Listener::open({"127.0.0.1", 0}, 0, nullptr, listener_));
        network_ = std::make_unique<SlowNetwork>(listener_->address().port);
        renew_transport();
    }

    void renew_transport() {
        tcp::Target target;
        require_ok(tcp::Target::make({"127.0.0.1", network_->port()}, connect_, nullptr, target));
        transport_ = std::make_unique<tcp::TcpTransport>(target);
    }

    Outcome write(char letter, std::chrono::nanoseconds stall_limit = kLong) {
        const std::vector<std::byte> source(kBytes, static_cast<std::byte>(letter));
        RoutedBatch batch;
        batch.add(*transport_, Direction::Write,
                  {exposed_->memory.data(), const_cast<std::byte*>(source.data()), source.size()});
        return batch.run([] { return Status::Ok; }, stall_limit);
    }

    // A write whose bytes are on their way when it is given up.
    void give_up_a_write() {
        ASSERT_EQ(write('a').status, Status::Ok);
        network_->hold();
        const Outcome given_up = write('o', kStalled);
        ASSERT_NE(given_up.status, Status::Ok);
        ASSERT_TRUE(given_up.may_have_touched_more);
        ASSERT_GE(network_->held_bytes(), kBytes);
    }

    // The same, but for the initiator it ends like a connection whose target has died.
    void lose_a_write() {
        ASSERT_EQ(write('a').status, Status::Ok);
        network_->hold();
        std::thread cutting([this] {
            while (network_->held_bytes() < kBytes) std::this_thread::yield();
            network_->cut();
        });
        const Outcome lost = write('o');
        cutting.join();
        ASSERT_EQ(lost.status, Status::NotConnected);
        ASSERT_TRUE(lost.may_have_touched_more);
    }

    void expect_that_nothing_comes() {
        network_->release();
        const auto deadline = std::chrono::steady_clock::now() + kLong;
        while (!network_->all_delivered() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        ASSERT_TRUE(network_->all_delivered());
        served_.reset();  // joins whoever writes
        EXPECT_TRUE(same_bytes(exposed_->memory, std::vector<std::byte>(kBytes, std::byte{'n'})));
    }

    Connect connect_{};
    const std::shared_ptr<Exposed> exposed_ = std::make_shared<Exposed>();
    std::unique_ptr<tcp::ServedMemory> served_;
    std::unique_ptr<tcp::Listener> listener_;
    std::unique_ptr<SlowNetwork> network_;
    std::unique_ptr<tcp::TcpTransport> transport_;
};

TEST_F(TcpFence, keeps_off_the_bytes_of_a_write_that_was_given_up) {
    give_up_a_write();
    EXPECT_EQ(tcp::GivenUp::process().of(connect_.target).size(), 1U);
    ASSERT_EQ(write('n').status, Status::Ok);
    EXPECT_TRUE(tcp::GivenUp::process().of(connect_.target).empty());
    expect_that_nothing_comes();
}

TEST_F(TcpFence, keeps_off_the_bytes_of_a_connection_that_has_ended_here_only) {
    lose_a_write();
    EXPECT_EQ(tcp::GivenUp::process().of(connect_.target).size(), 1U);
    ASSERT_EQ(write('n').status, Status::Ok);
    expect_that_nothing_comes();
}

TEST_F(TcpFence, holds_for_another_transport_to_the_same_target) {
    give_up_a_write();
    renew_transport();
    ASSERT_EQ(write('n').status, Status::Ok);
    expect_that_nothing_comes();
}

TEST_F(TcpFence, of_a_read_comes_before_it_as_well) {
    give_up_a_write();
    std::vector<std::byte> found(kBytes);
    RoutedBatch batch;
    batch.add(*transport_, Direction::Read, {found.data(), exposed_->memory.data(), found.size()});
    ASSERT_EQ(batch.run([] { return Status::Ok; }, kLong).status, Status::Ok);
    EXPECT_TRUE(same_bytes(found, std::vector<std::byte>(kBytes, std::byte{'a'})));
    EXPECT_TRUE(tcp::GivenUp::process().of(connect_.target).empty());
    std::ranges::fill(exposed_->memory, std::byte{'n'});
    expect_that_nothing_comes();
}

TEST_F(TcpFence, is_raised_for_many_connections_at_a_time) {
    ASSERT_EQ(write('a').status, Status::Ok);
    for (std::uint64_t number = 1; number <= 2500; ++number) {  // that the target does not know
        tcp::GivenUp::process().add(connect_.target, number);
    }
    ASSERT_EQ(write('n').status, Status::Ok);
    EXPECT_TRUE(tcp::GivenUp::process().of(connect_.target).empty());
}

TEST_F(TcpFence, does_not_concern_the_connections_of_other_memory) {
    const tcp::Fence fence(exposed_.get());
    const Exposed other;
    const std::array numbers{tcp::RemotePiece{fence.number(), 0}};
    tcp::Fence::raise(&other, numbers);
    EXPECT_FALSE(fence.raised());
    tcp::Fence::raise(exposed_.get(), numbers);
    EXPECT_TRUE(fence.raised());
}

}  // namespace
}  // namespace memfabric
