// SPDX-License-Identifier: Apache-2.0
#include "endpoint/heartbeat.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/assertions.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Pair {
    int ours = -1;
    int theirs = -1;

    Pair() {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0) {
            ours = fds[0];
            theirs = fds[1];
        }
    }
    ~Pair() {
        close_ours();
        close_theirs();
    }
    void close_ours() {
        if (ours >= 0) ::close(std::exchange(ours, -1));
    }
    void close_theirs() {
        if (theirs >= 0) ::close(std::exchange(theirs, -1));
    }
    // What arrives within 5 s, at most `size` bytes; "" at the end of the stream.
    std::string receive(std::size_t size) const {
        pollfd fd{theirs, POLLIN, 0};
        if (poll(&fd, 1, 5000) != 1) return "(nothing)";
        std::string text(size, '\0');
        const ssize_t got = recv(theirs, text.data(), size, 0);
        text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
        return text;
    }
};

bool becomes_silent(const Heartbeat& heartbeat) {
    for (const auto end = Clock::now() + 5s; Clock::now() < end; std::this_thread::sleep_for(1ms)) {
        if (!heartbeat.beating()) return true;
    }
    return false;
}

TEST(Heartbeat, beats_until_stopped) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    const auto start = Clock::now();
    ASSERT_EQ(Heartbeat::start(pair.ours, "beat", 10ms, heartbeat), Status::Ok);
    pair.close_ours();  // it has its own
    EXPECT_EQ(pair.receive(4), "beat");
    EXPECT_GE(Clock::now() - start, 10ms);
    EXPECT_EQ(pair.receive(4), "beat");
    EXPECT_TRUE(heartbeat->beating());
    heartbeat->stop();
    heartbeat->stop();
    EXPECT_FALSE(heartbeat->beating());
    std::string rest = pair.receive(4);
    while (rest == "beat") rest = pair.receive(4);
    EXPECT_EQ(rest, "");
}

TEST(Heartbeat, sends_a_supply_once_and_in_order) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    ASSERT_EQ(Heartbeat::start(pair.ours, "aabb", 5ms, heartbeat, 2), Status::Ok);
    EXPECT_EQ(pair.receive(2), "aa");
    EXPECT_EQ(pair.receive(2), "bb");
    EXPECT_EQ(heartbeat->beats_left(), 0u);
    EXPECT_TRUE(heartbeat->beating()) << "it waits for more";
    EXPECT_EQ(heartbeat->add("ccddee"), Status::Ok);
    EXPECT_EQ(pair.receive(2), "cc");
    EXPECT_EQ(heartbeat->add("ff"), Status::Ok);
    EXPECT_EQ(pair.receive(2), "dd");
    EXPECT_EQ(pair.receive(2), "ee");
    EXPECT_EQ(pair.receive(2), "ff");
    EXPECT_EQ(heartbeat->beats_left(), 0u);
}

TEST(Heartbeat, takes_whole_beats_only) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    EXPECT_EQ(Heartbeat::start(pair.ours, "aab", 5ms, heartbeat, 2), Status::InvalidParam);
    ASSERT_EQ(Heartbeat::start(pair.ours, "aa", 1h, heartbeat, 2), Status::Ok);
    EXPECT_EQ(heartbeat->add("b"), Status::InvalidParam);
    EXPECT_EQ(heartbeat->beats_left(), 1u);
    std::unique_ptr<Heartbeat> endless;
    ASSERT_EQ(Heartbeat::start(pair.ours, "aa", 1h, endless), Status::Ok);
    EXPECT_EQ(endless->add("aa"), Status::InvalidParam) << "it has no supply";
    EXPECT_EQ(endless->beats_left(), 0u);
}

TEST(Heartbeat, ends_when_the_peer_is_gone) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    ASSERT_EQ(Heartbeat::start(pair.ours, "beat", 1ms, heartbeat), Status::Ok);
    pair.close_theirs();
    EXPECT_TRUE(becomes_silent(*heartbeat));
}

TEST(Heartbeat, stops_at_once_though_the_socket_is_full) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    ASSERT_EQ(Heartbeat::start(pair.ours, std::string(std::size_t{4} << 20, 'x'), 1ms, heartbeat), Status::Ok);
    EXPECT_EQ(pair.receive(1), "x");  // it is inside the first beat and cannot finish it
    const auto start = Clock::now();
    heartbeat->stop();
    EXPECT_LT(Clock::now() - start, 1s);
}

TEST(Heartbeat, sends_whole_beats_to_a_slow_reader) {
    Pair pair;
    const std::string payload = std::string(300'000, 'a') + "z";
    std::unique_ptr<Heartbeat> heartbeat;
    ASSERT_EQ(Heartbeat::start(pair.ours, payload, 1ms, heartbeat), Status::Ok);
    std::string got;
    while (got.size() < 2 * payload.size()) {
        const std::string part = pair.receive(2 * payload.size() - got.size());
        ASSERT_NE(part, "(nothing)");
        got += part;
    }
    EXPECT_TRUE(got == payload + payload);
}

TEST(Heartbeat, refuses_nonsense) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    EXPECT_EQ(Heartbeat::start(pair.ours, "", 10ms, heartbeat), Status::InvalidParam);
    EXPECT_EQ(Heartbeat::start(pair.ours, "beat", 0ms, heartbeat), Status::InvalidParam);
    EXPECT_EQ(Heartbeat::start(-1, "beat", 10ms, heartbeat), Status::InvalidParam);
    EXPECT_TRUE(tests::says("file descriptor -1"));
}

}  // namespace
}  // namespace memfabric
