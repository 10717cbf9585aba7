// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

namespace memfabric {

// A kernel that lacks the option goes on without it.
inline void set_option(int fd, int level, int option, int value) {
    static_cast<void>(setsockopt(fd, level, option, &value, sizeof value));
}

}  // namespace memfabric
