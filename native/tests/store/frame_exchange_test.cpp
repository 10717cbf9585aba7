// SPDX-License-Identifier: Apache-2.0
#include "store/frame_exchange.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "tests/check.h"

namespace memfabric::store {
namespace {

using namespace std::string_literals;
using End = FrameExchange::End;

constexpr std::size_t kLimitBytes = 1 << 20;

double in_s(double seconds) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count() + seconds;
}

std::string framed(const std::string& payload) {
    std::string frame(4, '\0');
    for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<char>(payload.size() >> (24 - 8 * i));
    return frame + '\x01' + payload;
}

struct Line {
    int ours = -1;
    int theirs = -1;

    Line() {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0)
            std::tie(ours, theirs) = std::pair(fds[0], fds[1]);
    }
    ~Line() {
        ::close(ours);
        hang_up();
    }
    void hang_up() {
        if (theirs >= 0) ::close(std::exchange(theirs, -1));
    }
    void say(const std::string& bytes) const {
        CHECK(::send(theirs, bytes.data(), bytes.size(), 0) == std::ssize(bytes));
    }
};

TEST(an_exchange_of_short_frames) {
    const Line line;
    line.say(framed("answer"));
    FrameExchange exchange(line.ours, "question", in_s(5), kLimitBytes);
    CHECK(exchange.run() == End::kAnswered);
    CHECK(exchange.answer() == "answer");
    std::string heard(8, '\0');
    CHECK(::recv(line.theirs, heard.data(), heard.size(), 0) == 8);
    CHECK(heard == "question");
}

TEST(an_answer_that_comes_in_pieces_and_is_longer_than_most) {
    const Line line;
    const std::string payload(kLimitBytes, 'x');
    std::thread store([&] {
        const std::string frame = framed(payload);
        line.say(frame.substr(0, 3));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it is a piece
        line.say(frame.substr(3, 20'000));
        for (std::size_t at = 20'003; at < frame.size(); at += 65'536) line.say(frame.substr(at, 65'536));
    });
    FrameExchange exchange(line.ours, "question", in_s(30), kLimitBytes);
    CHECK(exchange.run() == End::kAnswered);
    store.join();
    CHECK(exchange.answer() == payload);
}

TEST(a_question_larger_than_the_socket_takes_at_once) {
    const Line line;
    const std::string question(4 << 20, 'q');
    std::thread store([&] {
        std::string heard(question.size(), '\0');
        CHECK(::recv(line.theirs, heard.data(), heard.size(), MSG_WAITALL) == std::ssize(question));
        CHECK(heard == question);
        line.say(framed("y"));
    });
    FrameExchange exchange(line.ours, question, in_s(30), kLimitBytes);
    CHECK(exchange.run() == End::kAnswered);
    store.join();
    CHECK(exchange.answer() == "y");
}

TEST(a_store_that_is_silent_is_late) {
    const Line line;
    FrameExchange exchange(line.ours, "question", in_s(0.05), kLimitBytes);
    CHECK(exchange.run() == End::kLate);
}

TEST(a_store_that_hangs_up_is_lost) {
    Line line;
    line.say("\0\0"s);
    line.hang_up();
    FrameExchange exchange(line.ours, "", in_s(5), kLimitBytes);
    CHECK(exchange.run() == End::kLost);
    CHECK(exchange.reason() == "the store closed the connection");
    FrameExchange again(line.ours, "question", in_s(5), kLimitBytes);
    CHECK(again.run() == End::kLost);
    CHECK(again.reason() == "Broken pipe");
}

TEST(what_is_no_answer_is_lost) {
    for (const auto& [bytes, reason] : {
             std::pair{"HTTP/1.1 400 Bad Request"s, "not an answer of a store: another version, or another language"s},
             std::pair{"\x7f\xff\xff\xff\x01"s, "an answer of 2147483647 bytes is announced, allowed are 1048576"s},
             std::pair{framed("one") + framed("two"), "the store sent more than one answer"s},
         }) {
        const Line line;
        line.say(bytes);
        FrameExchange exchange(line.ours, "question", in_s(5), kLimitBytes);
        CHECK(exchange.run() == End::kLost);
        CHECK(exchange.reason() == reason);
    }
}

}  // namespace
}  // namespace memfabric::store
