// SPDX-License-Identifier: Apache-2.0
#include "endpoint/packets.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "base/last_error.h"
#include "base/limits.h"
#include "base/pause_point.h"

namespace memfabric {
namespace {

socklen_t abstract_address(const std::string& name, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

union Control {
    cmsghdr alignment;
    std::array<char, CMSG_SPACE(kMostPacketFds * sizeof(int))> bytes;
};

}  // namespace

Sending send_packet(int fd, const Bytes& bytes, std::span<const int> fds) {
    iovec vector{const_cast<char*>(bytes.data()), bytes.size()};
    Control control{};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
        message.msg_control = control.bytes.data();
        message.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size())) return Sending::Sent;
    if (errno == ETOOMANYREFS) {
        PausePoint::reach("transfer.crowded");
        return Sending::Crowded;
    }
    return errno == EAGAIN || errno == EINTR ? Sending::Full : Sending::Failed;
}

Reception receive_packet(int fd, Packet& packet) {
    const auto buffer = std::make_unique_for_overwrite<char[]>(kLongestPacketBytes);
    packet.fds.clear();
    packet.fds_lost = false;
    iovec vector{buffer.get(), kLongestPacketBytes};
    Control control;
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Reception::Nothing;
    if (got < 0) return Reception::End;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int arrived = -1;
            std::memcpy(&arrived, CMSG_DATA(header) + i * sizeof arrived, sizeof arrived);
            packet.fds.emplace_back(arrived);
            if (!packet.fds.back()) packet.fds_lost = true;  // it came as a standard stream and found no other number
        }
    }
    if (got == 0) {  // an empty packet looks the same, and may have brought descriptors
        packet.fds.clear();
        return Reception::End;
    }
    packet.bytes.assign(buffer.get(), static_cast<std::size_t>(got));
    if ((message.msg_flags & MSG_CTRUNC) != 0) packet.fds_lost = true;
    if (packet.fds_lost) packet.fds.clear();
    if ((message.msg_flags & MSG_TRUNC) != 0) packet.bytes.clear();  // decodes as malformed
    return Reception::Packet;
}

Status listen_abstract(const std::string& name, OwnedFd& listener) {
    sockaddr_un address;
    const socklen_t length = abstract_address(name, address);
    OwnedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd.get(), kBacklog) != 0) {
        return fail(Status::NoResources, "cannot listen on a Unix socket: %s", std::strerror(errno));
    }
    listener = std::move(fd);
    return Status::Ok;
}

Status connect_abstract(const std::string& name, OwnedFd& connection) {
    sockaddr_un address;
    const socklen_t length = abstract_address(name, address);
    OwnedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
        return fail(Status::NoResources, "no socket can be made: %s; raise the limit of open files (ulimit -n)",
                    std::strerror(errno));
    }
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
        return fail(Status::NotConnected, "its Unix socket does not answer: %s", std::strerror(errno));
    }
    connection = std::move(fd);
    return Status::Ok;
}

}  // namespace memfabric
