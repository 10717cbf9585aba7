// SPDX-License-Identifier: Apache-2.0
//
// Packets with file descriptors on Unix sockets, and who is at the other end.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/frames.h"

namespace memfabric {

inline constexpr std::size_t kMostPacketFds = 4;

struct Packet {
    Bytes bytes;
    std::vector<OwnedFd> fds;
    bool fds_lost = false;  // there were some, but this process has no descriptor left for them; `fds` is then empty
};

enum class Reception : std::uint8_t { Nothing, Packet, End };
enum class Sending : std::uint8_t {
    Sent,
    Full,     // the socket says when it has room again
    Crowded,  // too many descriptors of this user are in flight (all its sockets count): nothing says when that ends
    Failed,
};

// Neither of them blocks. Descriptors in a packet that is cut are closed.
Sending send_packet(int fd, const Bytes& bytes, std::span<const int> fds);
Reception receive_packet(int fd, Packet& packet);

Status listen_abstract(const std::string& name, OwnedFd& listener);
Status connect_abstract(const std::string& name, OwnedFd& connection);

// Whether a process belongs to our user, or to root. The kernel shows every user whom our user namespace does not know
// as one and the same (65534): if there can be such users and that is our own number, only a process that we may look
// into is believed.
bool is_our_user(const ucred& process);

// The process at the other end, as this process's namespaces show it; its pid is 0 if they do not.
bool peer_of(int fd, ucred& peer);

void fill_random(std::span<std::uint8_t> bytes);
std::string hexadecimal(std::span<const std::uint8_t> bytes);

}  // namespace memfabric
