// SPDX-License-Identifier: Apache-2.0
#include "endpoint/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

namespace memfabric {
namespace {

std::atomic<int> host_timeout_ms{3000};

void set_option(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); }

}  // namespace

void set_host_timeout(std::chrono::milliseconds timeout) {
    host_timeout_ms.store(static_cast<int>(std::clamp<std::int64_t>(timeout.count(), 1, 1 << 30)));
}

// Keep-alive watches a connection on which nothing is under way, the user time-out one whose bytes are not received.
void keep_alive(int fd) {
    constexpr int kProbes = 3;
    const int timeout_ms = host_timeout_ms.load();
    const int interval_s = std::max(1, timeout_ms / 1000 / kProbes);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes - 1);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
}

}  // namespace memfabric
