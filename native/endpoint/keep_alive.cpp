// SPDX-License-Identifier: Apache-2.0
#include "endpoint/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <atomic>

#include "endpoint/socket_option.h"

namespace memfabric {
namespace {

std::atomic<int> host_timeout_ms{3000};

}  // namespace

void set_host_timeout(std::chrono::milliseconds timeout) {
    host_timeout_ms.store(static_cast<int>(std::clamp<std::int64_t>(timeout.count(), 1, 1 << 30)));
}

// Keep-alive watches a connection on which nothing is under way, the user time-out one whose bytes are not received;
// the kernel counts it for both. It sends a probe at most once a second, and none of them twice: a network that loses
// one in a hundred frames must not end a connection, so four of them have to be lost.
void keep_alive(int fd) {
    constexpr int kProbes = 4;
    const int interval_s = std::max(1, host_timeout_ms.load() / 1000 / (kProbes + 1));
    const int timeout_ms = std::max(host_timeout_ms.load(), (kProbes + 1) * interval_s * 1000);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
}

}  // namespace memfabric
