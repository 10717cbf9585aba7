// SPDX-License-Identifier: Apache-2.0
//
// A file descriptor with one owner, who closes it. Never 0, 1 or 2: these numbers are the program's, also while it has
// closed them, and what it prints must not arrive in our memory or on our sockets.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace memfabric {

inline constexpr int kLowestOwnFd = 3;

// The same file at a number that may be ours; -1 (errno) if there is none. The one that was given is gone either way.
inline int above_standard_streams(int fd) {
    if (fd < 0 || fd >= kLowestOwnFd) return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, kLowestOwnFd);
    const int error = errno;
    ::close(fd);
    errno = error;
    return moved;
}

class OwnedFd {
public:
    OwnedFd() = default;
    explicit OwnedFd(int fd) : fd_(above_standard_streams(fd)) {}
    ~OwnedFd() { reset(); }
    OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
    OwnedFd& operator=(OwnedFd&& other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }

    explicit operator bool() const { return fd_ >= 0; }
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }
    void reset(int fd = -1) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = above_standard_streams(fd);
    }

private:
    int fd_ = -1;
};

}  // namespace memfabric
