// SPDX-License-Identifier: Apache-2.0
#include "base/notify_fd.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "base/last_error.h"

namespace memfabric {

Status NotifyFd::make(const char* who, NotifyFd& made, int& shown) {
    OwnedFd waiting(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    OwnedFd own(waiting ? fcntl(waiting.get(), F_DUPFD_CLOEXEC, kLowestOwnFd) : -1);
    if (!own) return fail(Status::NoResources, "%s cannot make an eventfd: %s", who, std::strerror(errno));
    made.fd_ = std::move(own);
    shown = waiting.release();
    return Status::Ok;
}

void NotifyFd::notify() {
    eventfd_write(fd_.get(), 1);
    fd_.reset();
}

}  // namespace memfabric
