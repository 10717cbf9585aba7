// SPDX-License-Identifier: Apache-2.0
#include "base/notifier.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/last_error.h"

namespace memfabric {

Status Notifier::make(std::shared_ptr<Notifier>& made) {
    auto notifier = std::make_shared<Notifier>();
    OwnedFd anywhere(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (anywhere && anywhere.get() < kLowestOwnFd) {
        notifier->fd_.reset(fcntl(anywhere.get(), F_DUPFD_CLOEXEC, kLowestOwnFd));
    } else {
        notifier->fd_ = std::move(anywhere);
    }
    if (!notifier->fd_) {
        return fail(Status::NoResources, "an event loop that awaits needs a descriptor: %s", std::strerror(errno));
    }
    made = std::move(notifier);
    return Status::Ok;
}

void Notifier::notify(std::uint64_t token) {
    const std::lock_guard lock(mutex_);
    if (!fd_) return;
    tokens_.push_back(token);
    eventfd_write(fd_.get(), 1);
}

std::vector<std::uint64_t> Notifier::take() {
    const std::lock_guard lock(mutex_);
    eventfd_t ignored = 0;
    if (fd_) eventfd_read(fd_.get(), &ignored);
    return std::exchange(tokens_, {});
}

void Notifier::close() {
    const std::lock_guard lock(mutex_);
    fd_.reset();
    tokens_.clear();
}

}  // namespace memfabric
