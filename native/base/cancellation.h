// SPDX-License-Identifier: Apache-2.0
//
// Work on a thread of ours that somebody else may call off: it looks between two chunks, whatever it waits for ends,
// and it returns Interrupted when no byte of it moves any more.
//
//     thread that works:  const Cancellation scope([&] { return called_off.load(); });
//     between chunks:     if (Cancellation::requested()) return Status::Interrupted;
#pragma once

#include <functional>
#include <utility>

#include "base/api.h"
#include "base/interruption.h"

namespace memfabric {

// Thread contract: lives on the stack of the thread that works; `asked` is called there and must not block.
class MF_API Cancellation final : private Interruption {
public:
    explicit Cancellation(std::function<bool()> asked)
        : Interruption(true), outer_(std::exchange(current_, this)), asked_(std::move(asked)) {}
    ~Cancellation() { current_ = outer_; }

    // Of the work that this thread does; false where nobody can call it off.
    static bool requested() { return current_ != nullptr && current_->look(); }

private:
    bool look() override { return asked_() || (outer_ != nullptr && outer_->look()); }

    Cancellation* const outer_;
    const std::function<bool()> asked_;
    static constinit thread_local Cancellation* current_;
};

}  // namespace memfabric
