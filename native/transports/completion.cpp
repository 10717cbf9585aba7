// SPDX-License-Identifier: Apache-2.0
#include "transports/completion.h"

#include "base/interruption.h"

namespace memfabric {

// Of a completion without listeners only the address is used here: whoever waited may have gone on and destroyed it.
void Completion::wake(std::uint32_t before) {
    futex_wake_all(state_);
    if (before != kListened) return;
    std::vector<std::function<void()>> listeners;
    {
        const std::lock_guard lock(mutex_);
        listeners.swap(listeners_);
    }
    for (const auto& listener : listeners) listener();
}

Status Completion::wait(Timeout timeout) const {
    constexpr std::chrono::hours kUntilWoken{24};
    const auto until = std::chrono::steady_clock::now() + timeout.value_or(kUntilWoken);
    for (;;) {
        std::uint32_t state = state_.load(std::memory_order_acquire);
        if (state == kDone) return Status::Ok;
        const auto left = timeout ? until - std::chrono::steady_clock::now() : kUntilWoken;
        if (left <= std::chrono::nanoseconds::zero()) return Status::Timeout;
        if (state == kPending && !state_.compare_exchange_strong(state, kAwaited)) continue;
        futex_wait(state_, state == kPending ? kAwaited : state, Interruption::slice(left));
        if (!done() && Interruption::requested()) return Status::Interrupted;
    }
}

void Completion::wait_out() const {
    const DeferredInterruption deferred;
    static_cast<void>(wait(std::nullopt));
}

void Completion::listen(std::function<void()> listener) {
    {
        const std::lock_guard lock(mutex_);
        std::uint32_t state = state_.load(std::memory_order_acquire);
        while (state != kDone && !state_.compare_exchange_weak(state, kListened)) {
        }
        if (state != kDone) return listeners_.push_back(std::move(listener));
    }
    listener();
}

}  // namespace memfabric
