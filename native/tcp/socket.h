// SPDX-License-Identifier: Apache-2.0
//
// What both ends of a data connection do with their sockets.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

#include "endpoint/keep_alive.h"

namespace memfabric::tcp {

inline void set_data_options(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    keep_alive(fd);
}

// Whether a system call that failed has only nothing to do at the moment.
inline bool would_block() { return errno == EAGAIN || errno == EINTR; }

// How long both ends look for the next byte before they sleep: a sleeper is woken within 50 to 100 us on a virtual
// machine.
inline constexpr std::chrono::microseconds kSpin{50};

}  // namespace memfabric::tcp
