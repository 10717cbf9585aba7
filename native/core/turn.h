// SPDX-License-Identifier: Apache-2.0
//
// A lock with a deadline, for calls that serve one thread at a time. (The thread sanitizer does not understand
// std::timed_mutex on the steady clock, and an uncontended turn is cheaper.)
#pragma once

#include <chrono>

#include "core/futex.h"

namespace memfabric {

class Turn {
public:
    // False if another thread had it until then.
    bool take(std::chrono::steady_clock::time_point until) {
        std::uint32_t state = kFree;
        if (word_.compare_exchange_strong(state, kTaken, std::memory_order_acquire)) return true;
        while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
            const auto left = until - std::chrono::steady_clock::now();
            if (left <= std::chrono::nanoseconds::zero()) return false;
            futex_wait(word_, kAwaited, left);
        }
        return true;
    }
    void give_back() {
        if (word_.exchange(kFree, std::memory_order_release) == kAwaited) futex_wake_all(word_);
    }

private:
    static constexpr std::uint32_t kFree = 0, kTaken = 1, kAwaited = 2;
    FutexWord word_{kFree};
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
