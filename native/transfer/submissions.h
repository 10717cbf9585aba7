// SPDX-License-Identifier: Apache-2.0
//
// The transfers that an engine runs beside the program: those of one session in order, those of several sessions beside
// each other, so that a peer that does not answer holds up nobody else's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"

namespace memfabric {

// Thread contract: every method from any thread but those of its own. Threads start when they are needed, sleep when
// there is nothing to do, and are joined by `close`. In a forked child there is nothing to call: they stayed with the
// parent.
class MF_API Submissions {
public:
    using Task = std::function<void()>;

    Submissions();
    ~Submissions();
    Submissions(const Submissions&) = delete;
    Submissions& operator=(const Submissions&) = delete;

    Status submit(std::string_view session, Task task);
    void close();  // takes no more, and returns when all that was submitted has run; idempotent

    static constexpr std::size_t kMostThreads = 16;  // so many peers at a time
    static constexpr std::size_t kMostWaiting = std::size_t{1} << 20;

private:
    struct Queue;  // what the threads share with callers

    const ForkGuard fork_guard_;
    std::unique_ptr<Queue> queue_;
};

}  // namespace memfabric
