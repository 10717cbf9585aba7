// SPDX-License-Identifier: Apache-2.0
//
// A forked child inherits the bytes of its parent but none of its threads, and locks that those threads held stay
// locked forever. Four ways to live with that, whoever forked:
//
//     an object          has a ForkGuard, and asks it before it touches its threads, locks or sockets
//     what is global     and needs no lock is put right by a ChildHook, before the child does anything
//     a process's table  is held across forks, so that the child gets it unlocked and begins anew
//     a step in code     that is not ours is taken under NoForks, so that no child finds it half-done
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/api.h"

namespace memfabric {

// Remembers which process made an object.
class MF_API ForkGuard {
public:
    // One relaxed load: good enough for the short path, too.
    bool in_forked_child() const { return forks_.load(std::memory_order_relaxed) != made_after_; }

    // How many forks lie between this process and the one that first asked.
    static std::uint32_t forks();
    static std::uint32_t forks_so_far() { return forks_.load(std::memory_order_relaxed); }  // of the core, once asked

    // A thread of the parent: it can neither be joined nor detached here, and its object must not be destroyed.
    static void abandon(std::thread& thread) { new std::thread(std::move(thread)); }

private:
    static std::atomic<std::uint32_t> forks_;

    const std::uint32_t made_after_ = forks();
};

// `begin` runs in every child that is forked from now on, on its only thread. There is one for each, ever:
//
//     static const ChildHook hook(forget_other_threads);
class MF_API ChildHook {
public:
    explicit ChildHook(void (*begin)());
};

// `Table::process()` is locked by `before_fork`, unlocked by `after_fork` in the parent, and by `begin_in_child` in the
// child, which forgets what was the parent's. Called once, when the table is made; should that fail (no memory), only
// forks that come at a bad moment lose their safety.
template <typename Table>
void hold_across_forks() {
    pthread_atfork([] { Table::process().before_fork(); }, [] { Table::process().after_fork(); },
                   [] { Table::process().begin_in_child(); });
}

// While one exists, no fork of this process begins, whoever wants it: nothing that waits belongs inside. Threads take
// turns.
class MF_API NoForks {
public:
    NoForks();
    ~NoForks();
    NoForks(const NoForks&) = delete;
    NoForks& operator=(const NoForks&) = delete;
};

}  // namespace memfabric
