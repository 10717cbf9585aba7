// SPDX-License-Identifier: Apache-2.0
//
// Packets with file descriptors on Unix sockets, and who is at the other end.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/owned_fd.h"
#include "core/status.h"
#include "transfer/session_frames.h"

namespace memfabric {

inline constexpr std::size_t kMostPacketFds = 4;

struct Packet {
    Bytes bytes;
    std::vector<OwnedFd> fds;
};

enum class Reception : std::uint8_t { Nothing, Packet, End };

// Neither of them blocks. Descriptors that arrive beyond the limit, or in a packet that is cut, are closed.
bool send_packet(int fd, const Bytes& bytes, std::span<const int> fds);
Reception receive_packet(int fd, Packet& packet);

Status listen_abstract(const std::string& name, OwnedFd& listener);
Status connect_abstract(const std::string& name, OwnedFd& connection);

// The process at the other end, as this process's namespaces show it; its pid is 0 if they do not.
bool peer_of(int fd, ucred& peer);

void fill_random(std::span<std::uint8_t> bytes);
std::string hexadecimal(std::span<const std::uint8_t> bytes);

}  // namespace memfabric
