// SPDX-License-Identifier: Apache-2.0
//
// One descriptor for many ends that an event loop waits for: it is readable when some have come, and tells which.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/api.h"
#include "base/owned_fd.h"
#include "base/status.h"

namespace memfabric {

// Thread contract: any thread. Whoever will notify keeps it alive; `close` ends it for all. It knows who shares it, so
// that Python's part is one of several and letting go of it elsewhere takes no interpreter's lock.
class MF_API Notifier : public std::enable_shared_from_this<Notifier> {
public:
    static Status make(std::shared_ptr<Notifier>& made);

    int fd() const { return fd_.get(); }
    void notify(std::uint64_t token);  // does not block; nothing once it is closed
    std::vector<std::uint64_t> take();
    void close();

private:
    std::mutex mutex_;
    OwnedFd fd_;
    std::vector<std::uint64_t> tokens_;
};

}  // namespace memfabric
