// SPDX-License-Identifier: Apache-2.0
//
// Holds an engine's life word with a thread of its own, as the owner of a robust futex: when the process dies (or
// becomes another program by exec) the kernel itself wipes the word, before the process's number can be given away.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/fork_guard.h"
#include "base/status.h"

namespace memfabric {

class LivenessLease {
public:
    // The word says "alive" when this returns. On systems without robust lists (emulators) nobody wipes it at death;
    // peers then learn of it from their connection only.
    static Status start(std::atomic<std::uint32_t>& word, std::unique_ptr<LivenessLease>& started);
    ~LivenessLease();  // the word says "gone", the thread is joined; in a forked child neither: both are the parent's
    LivenessLease(const LivenessLease&) = delete;
    LivenessLease& operator=(const LivenessLease&) = delete;

private:
    explicit LivenessLease(std::atomic<std::uint32_t>& word) : word_(word) {}
    void hold();

    const ForkGuard fork_guard_;
    std::atomic<std::uint32_t>& word_;
    std::atomic<bool> holding_{false};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace memfabric
