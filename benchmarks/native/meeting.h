// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection between the two processes of a driver.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "layouts.h"

namespace mf_bench {

inline sockaddr_in place_of(const char* address, int port) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port));
    if (inet_pton(AF_INET, address, &place.sin_addr) != 1) die(std::string(address) + " is no IPv4 address");
    return place;
}

inline int without_delay(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

// Listens at any port, and says which behind "ready".
inline int listen_at(const char* address) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place = place_of(address, 0);
    socklen_t size = sizeof place;
    if (bind(listener, reinterpret_cast<sockaddr*>(&place), size) != 0 || listen(listener, 16) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&place), &size) != 0) {
        die(std::string("cannot listen at ") + address);
    }
    std::printf("ready %s %d\n", address, ntohs(place.sin_port));
    std::fflush(stdout);
    return listener;
}

inline int accept_at(int listener) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) die("nobody came");
    return without_delay(fd);
}

inline int wait_for_initiator(const char* address) {
    const int listener = listen_at(address);
    const int fd = accept_at(listener);
    close(listener);
    return fd;
}

inline int connect_to(const char* address, const char* port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in place = place_of(address, std::atoi(port));
    if (connect(fd, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0) {
        die(std::string("cannot connect to ") + address + ":" + port);
    }
    return without_delay(fd);
}

// What a driver does: target ADDRESS, or initiator LAYOUTS OWN_ADDRESS TARGET_ADDRESS PORT.
inline void drive(int count, char** words, void (*serve)(const char* address),
                  void (*initiate)(const char* layouts, const char* target, const char* port)) {
    const std::string role = count > 1 ? words[1] : "";
    if (count == 3 && role == "target") {
        serve(words[2]);
    } else if (count == 6 && role == "initiator") {
        initiate(words[2], words[4], words[5]);
    } else {
        die("usage: target ADDRESS | initiator LAYOUTS OWN_ADDRESS TARGET_ADDRESS PORT");
    }
}

// Until all of it has been moved; false at the end of the connection. The vectors are used up.
template <typename Call>
bool move_all(Call call, int fd, std::vector<iovec>& vectors) {
    for (std::size_t first = 0; first < vectors.size();) {
        const auto count = static_cast<int>(std::min<std::size_t>(vectors.size() - first, IOV_MAX));
        const ssize_t done = call(fd, &vectors[first], count);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        auto left = static_cast<std::size_t>(done);
        while (left != 0 && left >= vectors[first].iov_len) left -= vectors[first++].iov_len;
        if (left != 0) {
            vectors[first].iov_base = static_cast<char*>(vectors[first].iov_base) + left;
            vectors[first].iov_len -= left;
        }
    }
    return true;
}

inline bool send_all(int fd, std::vector<iovec> vectors) { return move_all(writev, fd, vectors); }
inline bool receive_all(int fd, std::vector<iovec> vectors) { return move_all(readv, fd, vectors); }

}  // namespace mf_bench
