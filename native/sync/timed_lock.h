// SPDX-License-Identifier: Apache-2.0
//
// A lock with a deadline, for calls that serve one thread at a time. (The thread sanitizer does not understand
// std::timed_mutex on the steady clock, and this one is cheaper while nobody contends.)
#pragma once

#include <atomic>
#include <chrono>

#include "base/interruption.h"
#include "base/status.h"
#include "sync/futex.h"

namespace memfabric {

class TimedLock {
public:
    // Timeout if another thread had it until then, at once if it is this one (a signal handler's call); Interrupted.
    // Neither leaves a sentence.
    Status lock(std::chrono::steady_clock::time_point until) {
        std::uint32_t state = kFree;
        if (word_.compare_exchange_strong(state, kLocked, std::memory_order_acquire)) return locked();
        if (owner_.load(std::memory_order_relaxed) == &own_mark_) return Status::Timeout;
        while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
            const auto left = until - std::chrono::steady_clock::now();
            if (left <= std::chrono::nanoseconds::zero()) return Status::Timeout;
            futex_wait(word_, kContended, Interruption::slice(left));
            if (Interruption::requested()) return Status::Interrupted;
        }
        return locked();
    }
    void unlock() {
        owner_.store(nullptr, std::memory_order_relaxed);
        if (word_.exchange(kFree, std::memory_order_release) == kContended) futex_wake_all(word_);
    }

private:
    Status locked() {
        owner_.store(&own_mark_, std::memory_order_relaxed);
        return Status::Ok;
    }

    static constexpr std::uint32_t kFree = 0, kLocked = 1, kContended = 2;
    static constinit thread_local char own_mark_;  // its address tells threads apart
    FutexWord word_{kFree};
    std::atomic<const char*> owner_{nullptr};
};

// Unlocks a lock that was locked at the end of the scope.
class TimedLockGuard {
public:
    explicit TimedLockGuard(TimedLock& lock) : lock_(lock) {}
    ~TimedLockGuard() { lock_.unlock(); }
    TimedLockGuard(const TimedLockGuard&) = delete;
    TimedLockGuard& operator=(const TimedLockGuard&) = delete;

private:
    TimedLock& lock_;
};

}  // namespace memfabric
