// SPDX-License-Identifier: Apache-2.0
//
// Remembers which process made an object. A forked child inherits the object's bytes but none of its threads, and
// locks that those threads held stay locked forever: objects with threads, locks or sockets ask this before they touch
// any of them. It does not matter who forked: the C library counts for us.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

namespace memfabric {

class ForkGuard {
public:
    // One relaxed load: good enough for the short path, too.
    bool in_forked_child() const { return forks_.load(std::memory_order_relaxed) != made_after_; }

    // How many forks lie between this process and the one that first asked.
    static std::uint32_t forks();

    // A thread of the parent: it can neither be joined nor detached here, and its object must not be destroyed.
    static void abandon(std::thread& thread) { new std::thread(std::move(thread)); }

private:
    inline static std::atomic<std::uint32_t> forks_{0};

    const std::uint32_t made_after_ = forks();
};

}  // namespace memfabric
