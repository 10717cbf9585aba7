// SPDX-License-Identifier: Apache-2.0
#include "transports/transport.h"

#include <chrono>

#include "base/interruption.h"

namespace memfabric {

bool Transport::progress(Completion& completion, Deadline until) noexcept {
    static_cast<void>(completion.wait(until - std::chrono::steady_clock::now()));
    return true;
}

void Transport::finish(Completion& completion) noexcept {
    constexpr std::chrono::hours kLong{1};
    const DeferredInterruption deferred;
    while (!completion.done()) static_cast<void>(progress(completion, std::chrono::steady_clock::now() + kLong));
}

}  // namespace memfabric
