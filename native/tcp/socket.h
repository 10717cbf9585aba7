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

// Closing it ends it at once, however it is closed: the kernel does not go on sending for somebody who has given up or
// died.
inline void forget_unsent(int fd) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// Whether a system call that failed has only nothing to do at the moment.
inline bool would_block() { return errno == EAGAIN || errno == EINTR; }

// How long both ends look for the next byte before they sleep: a sleeper is woken within 50 to 100 us on a virtual
// machine.
inline constexpr std::chrono::microseconds kSpin{50};

}  // namespace memfabric::tcp
