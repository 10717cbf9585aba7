// SPDX-License-Identifier: Apache-2.0
//
// A lock with a deadline, for calls that serve one thread at a time. (The thread sanitizer does not understand
// std::timed_mutex on the steady clock, and an uncontended turn is cheaper.)
#pragma once

#include <atomic>
#include <chrono>

#include "core/futex.h"
#include "core/interruption.h"
#include "core/status.h"

namespace memfabric {

class Turn {
public:
    // Timeout if another thread had it until then, at once if it is this one (a signal handler's call); Interrupted.
    // Neither leaves a sentence.
    Status take(std::chrono::steady_clock::time_point until) {
        std::uint32_t state = kFree;
        if (word_.compare_exchange_strong(state, kTaken, std::memory_order_acquire)) return taken();
        if (owner_.load(std::memory_order_relaxed) == &own_mark_) return Status::Timeout;
        while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
            const auto left = until - std::chrono::steady_clock::now();
            if (left <= std::chrono::nanoseconds::zero()) return Status::Timeout;
            futex_wait(word_, kAwaited, Interruption::slice(left));
            if (Interruption::requested()) return Status::Interrupted;
        }
        return taken();
    }
    void give_back() {
        owner_.store(nullptr, std::memory_order_relaxed);
        if (word_.exchange(kFree, std::memory_order_release) == kAwaited) futex_wake_all(word_);
    }

private:
    Status taken() {
        owner_.store(&own_mark_, std::memory_order_relaxed);
        return Status::Ok;
    }

    static constexpr std::uint32_t kFree = 0, kTaken = 1, kAwaited = 2;
    inline static thread_local char own_mark_ = 0;  // its address tells threads apart
    FutexWord word_{kFree};
    std::atomic<const char*> owner_{nullptr};
};

// Gives a turn that was taken back at the end of the scope.
class TurnGuard {
public:
    explicit TurnGuard(Turn& turn) : turn_(turn) {}
    ~TurnGuard() { turn_.give_back(); }
    TurnGuard(const TurnGuard&) = delete;
    TurnGuard& operator=(const TurnGuard&) = delete;

private:
    Turn& turn_;
};

}  // namespace memfabric
