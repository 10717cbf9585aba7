// SPDX-License-Identifier: Apache-2.0
#include "endpoint/heartbeat.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/blocked_signals.h"
#include "base/last_error.h"
#include "base/owned_fd.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

timespec timespec_of(Clock::duration duration) {
    const auto left = std::max(duration, Clock::duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    return {seconds.count(), std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count()};
}

}  // namespace

struct Heartbeat::Pulse {
    int socket_fd = -1;
    int stop_fd = -1;            // an eventfd that is readable when the thread has to end
    std::size_t beat_bytes = 0;  // 0: every beat is the whole payload
    std::mutex supplying;        // guards the two below, which change only with `beat_bytes`
    std::string payload;
    std::size_t sent_bytes = 0;  // of a supply
    std::chrono::milliseconds interval{};
    std::atomic<bool> beating{true};
    std::mutex joining;

    ~Pulse() {
        if (socket_fd >= 0) ::close(socket_fd);
        if (stop_fd >= 0) ::close(stop_fd);
    }

    void run() {
        for (auto due = Clock::now() + interval; !stopped_before(due);) {
            if (!beat()) break;
            due = std::max(due + interval, Clock::now());
        }
        ::close(std::exchange(socket_fd, -1));  // so that the peer sees the end when the caller closes its own
        beating.store(false);
    }

    bool stopped_before(Clock::time_point due) {
        while (true) {
            const timespec left = timespec_of(due - Clock::now());
            pollfd stop{stop_fd, POLLIN, 0};
            const int ready = ppoll(&stop, 1, &left, nullptr);
            if (ready > 0) return true;
            if (ready == 0) return false;
        }
    }

    // A copy of the next beat, because the supply may grow meanwhile; empty if there is none.
    std::string next_beat() {
        const std::lock_guard lock(supplying);
        if (beat_bytes == 0) return payload;
        std::string next = payload.substr(sent_bytes, beat_bytes);
        sent_bytes += next.size();
        return next;
    }

    // Sends one whole beat; false if told to stop or the peer is gone.
    bool beat() {
        const std::string whole = next_beat();
        for (std::string_view rest = whole; !rest.empty();) {
            const ssize_t sent = send(socket_fd, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent >= 0) {
                rest.remove_prefix(static_cast<std::size_t>(sent));
            } else if (errno == EAGAIN) {
                pollfd fds[] = {{stop_fd, POLLIN, 0}, {socket_fd, POLLOUT, 0}};
                if (poll(fds, 2, -1) > 0 && fds[0].revents != 0) return false;
            } else if (errno != EINTR) {
                return false;
            }
        }
        return true;
    }
};

Status Heartbeat::start(int fd, std::string payload, std::chrono::milliseconds interval,
                        std::unique_ptr<Heartbeat>& started, std::size_t beat_bytes) {
    if (beat_bytes != 0 && payload.size() % beat_bytes != 0) {
        return fail(Status::InvalidParam, "a supply of %zu bytes is no multiple of a heartbeat of %zu", payload.size(),
                    beat_bytes);
    }
    if (payload.empty() || interval.count() < 1) {
        return fail(Status::InvalidParam, "a heartbeat of %zu bytes every %lld ms: both must be at least 1",
                    payload.size(), static_cast<long long>(interval.count()));
    }
    auto pulse = std::make_unique<Pulse>();
    pulse->socket_fd = fcntl(fd, F_DUPFD_CLOEXEC, kLowestOwnFd);
    if (pulse->socket_fd < 0) {
        return fail(Status::InvalidParam, "cannot send heartbeats on file descriptor %d: %s", fd, std::strerror(errno));
    }
    pulse->stop_fd = above_standard_streams(eventfd(0, EFD_CLOEXEC));
    if (pulse->stop_fd < 0) {
        return fail(Status::NoResources, "cannot make an eventfd for heartbeats: %s", std::strerror(errno));
    }
    pulse->payload = std::move(payload);
    pulse->beat_bytes = beat_bytes;
    pulse->interval = interval;
    try {
        const BlockedSignals blocked;
        started.reset(new Heartbeat(std::move(pulse)));
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "cannot start the thread that sends heartbeats: %s", error.what());
    }
    return Status::Ok;
}

Heartbeat::Heartbeat(std::unique_ptr<Pulse> pulse)
    : pulse_(std::move(pulse)), thread_([pulse = pulse_.get()] {
          pthread_setname_np(pthread_self(), "mf-heartbeat");
          pulse->run();
      }) {}

Heartbeat::~Heartbeat() {
    if (fork_guard_.in_forked_child()) {
        ForkGuard::abandon(thread_);
        return;
    }
    stop();
}

Status Heartbeat::add(std::string_view beats) {
    if (pulse_->beat_bytes == 0 || beats.size() % pulse_->beat_bytes != 0) {
        return fail(Status::InvalidParam, "%zu bytes are no whole heartbeats of %zu bytes", beats.size(),
                    pulse_->beat_bytes);
    }
    const std::lock_guard lock(pulse_->supplying);
    pulse_->payload.erase(0, std::exchange(pulse_->sent_bytes, 0));
    pulse_->payload += beats;
    return Status::Ok;
}

std::size_t Heartbeat::beats_left() const {
    if (pulse_->beat_bytes == 0) return 0;
    const std::lock_guard lock(pulse_->supplying);
    return (pulse_->payload.size() - pulse_->sent_bytes) / pulse_->beat_bytes;
}

void Heartbeat::stop() {
    if (fork_guard_.in_forked_child()) return;
    const std::lock_guard lock(pulse_->joining);
    if (!thread_.joinable()) return;
    eventfd_write(pulse_->stop_fd, 1);
    thread_.join();
}

bool Heartbeat::beating() const { return !fork_guard_.in_forked_child() && pulse_->beating.load(); }

}  // namespace memfabric
