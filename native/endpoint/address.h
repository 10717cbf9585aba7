// SPDX-License-Identifier: Apache-2.0
//
// Where a session is: "ip:port", "[v6]:port", "host:port", and the same without a port; and the sockets of such places.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/api.h"
#include "base/owned_fd.h"
#include "base/status.h"

namespace memfabric {

using Deadline = std::chrono::steady_clock::time_point;

struct MF_API SessionAddress {
    std::string host;
    std::uint16_t port = 0;  // 0: none was given

    // InvalidParam names what is wrong. Resolves no names.
    static Status parse(std::string_view text, SessionAddress& parsed);
    static bool of_peer(int fd, SessionAddress& address);  // a numeric address
    std::string text() const;
};

// A port that the kernel gives to nobody else while the socket is held; it does not listen.
Status reserve_port(OwnedFd& holder, std::uint16_t& port);

// ResourceInUse names the port that is taken.
Status listen_at(const SessionAddress& address, OwnedFd& listener);

std::uint16_t port_of(int fd);  // that the socket is bound to

// NotConnected or Timeout say what was tried.
Status connect_to(const SessionAddress& address, Deadline deadline, OwnedFd& connection);

// Until the socket is ready for `events` (of poll): false at the deadline.
Status wait_for_socket(int fd, short events, Deadline deadline);

}  // namespace memfabric
