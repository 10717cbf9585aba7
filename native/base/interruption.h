// SPDX-License-Identifier: Apache-2.0
//
// How a wait learns that it should end early. A Python program's signal handlers run on its main thread only, between
// two of its own instructions: a thread that waits down here for minutes has to let them run, or Ctrl-C does nothing.
//
//     while (!done()) {
//         sleep(Interruption::slice(time_left));
//         if (Interruption::requested()) return Status::Interrupted;   // no lock held
//     }
#pragma once

#include <algorithm>
#include <chrono>

#include "base/api.h"

namespace memfabric {

// Thread contract: everything here concerns the calling thread alone. Threads that nobody interrupts (all of ours, and
// all but one of a program's) sleep as long as they like.
class MF_API Interruption {
public:
    static constexpr std::chrono::milliseconds kLongestSleep{50};  // handlers run within 0.1 s

    static bool requested() { return current_ != nullptr && current_->look(); }
    static bool possible() { return current_ != nullptr; }
    static std::chrono::nanoseconds slice(std::chrono::nanoseconds left) {
        return current_ == nullptr ? left : std::min<std::chrono::nanoseconds>(left, kLongestSleep);
    }

protected:
    // `on` is false on threads that need not look.
    explicit Interruption(bool on) : outer_(current_) { current_ = on ? this : nullptr; }
    ~Interruption() { current_ = outer_; }
    Interruption(const Interruption&) = delete;
    Interruption& operator=(const Interruption&) = delete;

    // Lets whoever wants to run do so; true: the wait has to end. Once true, always true.
    virtual bool look() = 0;

private:
    friend class DeferredInterruption;

    Interruption* const outer_;
    static constinit thread_local Interruption* current_;
};

// While one exists, handlers run but end no wait: for what must be finished once it has begun. What they raise comes
// out afterwards.
class DeferredInterruption final : private Interruption {
public:
    DeferredInterruption() : Interruption(possible()) {}

private:
    bool look() override {
        static_cast<void>(outer_->look());
        return false;
    }
};

}  // namespace memfabric
