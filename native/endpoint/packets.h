// SPDX-License-Identifier: Apache-2.0
//
// Packets with file descriptors on Unix sockets. Nothing here blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"

namespace memfabric {

using Bytes = std::string;  // of a packet or a frame

inline constexpr std::size_t kMostPacketFds = 253;  // the kernel's limit
inline constexpr std::size_t kLongestPacketBytes = 64 << 10;

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

Sending send_packet(int fd, const Bytes& bytes, std::span<const int> fds);

// Descriptors in a packet that is cut are closed; one that is too long arrives without content. So does an empty one:
// it cannot be told from the end.
Reception receive_packet(int fd, Packet& packet);

// Abstract names: the kernel frees them with their process.
Status listen_abstract(const std::string& name, OwnedFd& listener);
Status connect_abstract(const std::string& name, OwnedFd& connection);

}  // namespace memfabric
