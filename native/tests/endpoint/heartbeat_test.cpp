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

#include "base/last_error.h"
#include "tests/check.h"

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

TEST(heartbeat_beats_until_stopped) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    const auto start = Clock::now();
    REQUIRE_EQ(Heartbeat::start(pair.ours, "beat", 10ms, heartbeat), Status::Ok);
    pair.close_ours();  // it has its own
    CHECK_EQ(pair.receive(4), "beat");
    CHECK(Clock::now() - start >= 10ms);
    CHECK_EQ(pair.receive(4), "beat");
    CHECK(heartbeat->beating());
    heartbeat->stop();
    heartbeat->stop();
    CHECK(!heartbeat->beating());
    std::string rest = pair.receive(4);
    while (rest == "beat") rest = pair.receive(4);
    CHECK_EQ(rest, "");
}

TEST(heartbeat_ends_when_the_peer_is_gone) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    REQUIRE_EQ(Heartbeat::start(pair.ours, "beat", 1ms, heartbeat), Status::Ok);
    pair.close_theirs();
    CHECK(becomes_silent(*heartbeat));
}

TEST(heartbeat_stops_at_once_though_the_socket_is_full) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    REQUIRE_EQ(Heartbeat::start(pair.ours, std::string(std::size_t{4} << 20, 'x'), 1ms, heartbeat), Status::Ok);
    CHECK_EQ(pair.receive(1), "x");  // it is inside the first beat and cannot finish it
    const auto start = Clock::now();
    heartbeat->stop();
    CHECK(Clock::now() - start < 1s);
}

TEST(heartbeat_sends_whole_beats_to_a_slow_reader) {
    Pair pair;
    const std::string payload = std::string(300'000, 'a') + "z";
    std::unique_ptr<Heartbeat> heartbeat;
    REQUIRE_EQ(Heartbeat::start(pair.ours, payload, 1ms, heartbeat), Status::Ok);
    std::string got;
    while (got.size() < 2 * payload.size()) {
        const std::string part = pair.receive(2 * payload.size() - got.size());
        REQUIRE(part != "(nothing)");
        got += part;
    }
    CHECK(got == payload + payload);
}

TEST(heartbeat_refuses_nonsense) {
    Pair pair;
    std::unique_ptr<Heartbeat> heartbeat;
    CHECK_EQ(Heartbeat::start(pair.ours, "", 10ms, heartbeat), Status::InvalidParam);
    CHECK_EQ(Heartbeat::start(pair.ours, "beat", 0ms, heartbeat), Status::InvalidParam);
    CHECK_EQ(Heartbeat::start(-1, "beat", 10ms, heartbeat), Status::InvalidParam);
    CHECK(take_last_error().find("file descriptor -1") != std::string::npos);
}

}  // namespace
}  // namespace memfabric
