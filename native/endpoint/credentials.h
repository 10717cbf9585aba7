// SPDX-License-Identifier: Apache-2.0
//
// Who is at the other end of a Unix socket, as the kernel knows it.
#pragma once

#include <sys/socket.h>

#include "base/api.h"

namespace memfabric {

// The process at the other end, as this process's namespaces show it; its pid is 0 if they do not.
bool peer_of(int fd, ucred& peer);

// Whether a process belongs to our user, or to root. The kernel shows every user whom our user namespace does not know
// as one and the same (65534): if there can be such users and that is our own number, only a process that we may look
// into is believed.
MF_API bool is_our_user(const ucred& process);

}  // namespace memfabric
