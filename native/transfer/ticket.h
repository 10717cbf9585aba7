// SPDX-License-Identifier: Apache-2.0
//
// One transfer that runs beside its caller, who can ask for it, wait for it, or take it back while it has not begun.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "space/stream.h"
#include "transports/completion.h"

namespace memfabric {

// Thread contract: any thread. Whoever runs the work keeps the ticket alive.
class MF_API Ticket {
public:
    // The transfer, unless the ticket was cancelled first.
    void run(const Stream::Task& work);

    bool done() const { return completion_.done(); }
    bool cancel();                                  // true if the transfer will never begin
    void cut();                                     // the same, and one that runs ends at its next chunk; does not wait
    Status wait(Completion::Timeout timeout);       // the transfer's status; Timeout if it has not ended by then
    Status listen(std::function<void()> listener);  // runs when the transfer has ended, perhaps at once; must not block

private:
    enum class State : std::uint8_t { Waiting, Running, Cancelled };

    Status check_process() const;

    const ForkGuard fork_guard_;
    std::atomic<State> state_{State::Waiting};
    std::atomic<bool> cut_{false};
    Completion completion_;
};

}  // namespace memfabric
