// SPDX-License-Identifier: Apache-2.0
//
// The two ways in which descriptors can be few: those that this process has, and those of its user that are in flight.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/owned_fd.h"
#include "tests/assertions.h"

namespace memfabric::tests {

// The soft limit of descriptors, as long as it lives. The limit holds for the whole process.
class DescriptorLimit {
public:
    explicit DescriptorLimit(rlim_t count) {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit changed{count, before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &changed), 0);
    }
    ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
    DescriptorLimit(const DescriptorLimit&) = delete;
    DescriptorLimit& operator=(const DescriptorLimit&) = delete;

private:
    rlimit before_{};
};

// UBSan opens a pipe to look at an object's type, and takes a failure of that for a wrong type.
inline constexpr char kNoneToSpare[] = "the sanitizer needs descriptors itself";
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitizerNeedsDescriptors = true;
#else
inline constexpr bool kSanitizerNeedsDescriptors = false;
#endif

// As many as there are: whoever closes one can open one.
class NoFurtherDescriptor {
public:
    NoFurtherDescriptor() : limit_(lowest_free()) {}

private:
    static rlim_t lowest_free() { return static_cast<rlim_t>(OwnedFd(dup(STDERR_FILENO)).get()); }

    DescriptorLimit limit_;
};

// Nobody in this process can open anything.
class NoDescriptorLeft {
public:
    NoDescriptorLeft() : limit_(0) {}

private:
    DescriptorLimit limit_;
};

// Root is exempt from some limits: while this lives, the calling thread (and threads that it starts) is as any user,
// and one of its own: what is in flight is counted by user, and other tests run beside this one.
class PlainUserThread {
public:
    PlainUserThread() : was_root_(geteuid() == 0) {
        if (was_root_) become(kFirstUser + static_cast<uid_t>(getpid()));
    }
    ~PlainUserThread() {
        if (was_root_) become(0);
    }
    PlainUserThread(const PlainUserThread&) = delete;
    PlainUserThread& operator=(const PlainUserThread&) = delete;

private:
    static constexpr uid_t kFirstUser = 1'000'000'000;

    // The saved one stays root's, which is the way back. The C library's function would change all threads.
    static void become(uid_t user) { EXPECT_EQ(syscall(SYS_setresuid, user, user, -1), 0); }

    const bool was_root_;
};

// As many descriptors as the kernel allows are in flight: plain users can send no more, but open some. Needs a
// PlainUserThread.
class FewDescriptorsInFlight {
public:
    FewDescriptorsInFlight() {
        std::array<int, 2> ends{};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
        sending_.reset(ends[0]);
        receiving_.reset(ends[1]);
        limit_.emplace(kAllowed);
        while (send_many()) {
        }
        EXPECT_EQ(errno, ETOOMANYREFS);
    }

private:
    static constexpr int kAllowed = 512;
    static constexpr int kAtOnce = 250;

    bool send_many() const {
        char byte = 0;
        iovec vector{&byte, 1};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(kAtOnce * sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &vector;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(kAtOnce * sizeof(int));
        std::array<int, kAtOnce> fds;
        fds.fill(file_.get());
        std::memcpy(CMSG_DATA(header), fds.data(), sizeof fds);
        return sendmsg(sending_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    }

    const OwnedFd file_{open("/dev/null", O_RDONLY | O_CLOEXEC)};
    OwnedFd sending_;
    OwnedFd receiving_;
    std::optional<DescriptorLimit> limit_;
};

}  // namespace memfabric::tests
