// SPDX-License-Identifier: Apache-2.0
#include "store/frame_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <system_error>
#include <utility>

#include "store/gather_frame.h"

namespace memfabric::store {
namespace {

constexpr double kLongestPollS = 1000.0;  // whoever waits longer polls again

}  // namespace

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

FrameExchange::FrameExchange(int fd, std::string_view frame, double until, std::size_t longest_answer_bytes)
    : fd_(fd), unsent_(frame), until_(until), longest_answer_bytes_(longest_answer_bytes) {}

FrameExchange::End FrameExchange::run() {
    const End sent = send_all();
    return sent == End::kAnswered ? receive_all() : sent;
}

std::string_view FrameExchange::answer() const {
    const std::string_view frame(long_ ? long_.get() : short_.data(), received_bytes_);
    return frame.substr(kHeaderBytes);
}

FrameExchange::End FrameExchange::send_all() {
    while (!unsent_.empty()) {
        const ssize_t sent = ::send(fd_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            unsent_.remove_prefix(static_cast<std::size_t>(sent));
        } else if (const End end = after_failed_call(); end != End::kAnswered) {
            return end;
        } else if (const End ready = wait_for(POLLOUT); ready != End::kAnswered) {
            return ready;
        }
    }
    return End::kAnswered;
}

// Always waits by poll: a Unix socket wakes whoever sleeps in recv when its own message is read, too.
FrameExchange::End FrameExchange::receive_all() {
    while (expected_bytes_ == 0 || received_bytes_ < expected_bytes_) {
        if (const End end = wait_for(POLLIN); end != End::kAnswered) return end;
        char* const buffer = long_ ? long_.get() : short_.data();
        const std::size_t room = (long_ ? expected_bytes_ : short_.size()) - received_bytes_;
        const ssize_t got = ::recv(fd_, buffer + received_bytes_, room, MSG_DONTWAIT);
        if (got == 0) return lost("the store closed the connection");
        if (got < 0) {
            if (const End end = after_failed_call(); end != End::kAnswered) return end;
            continue;
        }
        received_bytes_ += static_cast<std::size_t>(got);
        if (expected_bytes_ == 0 && received_bytes_ >= kHeaderBytes && !read_announcement()) return End::kLost;
    }
    return received_bytes_ == expected_bytes_ ? End::kAnswered : lost("the store sent more than one answer");
}

bool FrameExchange::read_announcement() {
    std::size_t payload_bytes = 0;
    if (!read_header({short_.data(), received_bytes_}, payload_bytes)) {
        lost("not an answer of a store: another version, or another language");
        return false;
    }
    if (payload_bytes > longest_answer_bytes_) {
        lost("an answer of " + std::to_string(payload_bytes) + " bytes is announced, allowed are " +
             std::to_string(longest_answer_bytes_));
        return false;
    }
    expected_bytes_ = kHeaderBytes + payload_bytes;
    if (expected_bytes_ > short_.size()) {
        long_ = std::make_unique_for_overwrite<char[]>(expected_bytes_);  // pages are taken as bytes arrive
        std::copy_n(short_.data(), received_bytes_, long_.get());
    }
    return true;
}

// kAnswered: nothing is wrong, try again.
FrameExchange::End FrameExchange::after_failed_call() {
    if (errno == EINTR) return End::kInterrupted;
    return errno == EAGAIN || errno == EWOULDBLOCK ? End::kAnswered : lost(std::system_category().message(errno));
}

// kAnswered: the socket may be ready.
FrameExchange::End FrameExchange::wait_for(short event) {
    const double left_s = until_ - now_s();
    if (left_s <= 0) return End::kLate;
    pollfd socket{fd_, event, 0};
    const double wait_ms = std::ceil(std::min(left_s, kLongestPollS) * 1000);
    return ::poll(&socket, 1, static_cast<int>(wait_ms)) < 0 && errno == EINTR ? End::kInterrupted : End::kAnswered;
}

FrameExchange::End FrameExchange::lost(std::string reason) {
    reason_ = std::move(reason);
    return End::kLost;
}

}  // namespace memfabric::store
