// SPDX-License-Identifier: Apache-2.0
//
// One transfer that runs beside its caller, who can ask for it, wait for it, or take it back while it has not begun.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "space/stream.h"

namespace memfabric {

// Thread contract: any thread.
class Ticket {
public:
    // The outcome of `work` on the stream's thread, unless the ticket was cancelled first.
    Status run(const Stream::Task& work);
    void submitted(std::shared_ptr<Stream> stream, std::uint64_t sequence);

    bool done() const { return state_.load(std::memory_order_acquire) >= State::Done; }
    bool cancel();                         // true if the transfer will never begin
    Status wait(Stream::Timeout timeout);  // the transfer's status; Timeout if it has not ended by then
    Status notify_fd(int& fd) const;       // becomes readable when the transfer has ended

private:
    enum class State : std::uint8_t { Waiting, Running, Done, Cancelled };

    std::atomic<State> state_{State::Waiting};
    Failure outcome_;  // written before state_ becomes Done
    std::shared_ptr<Stream> stream_;
    std::uint64_t sequence_ = 0;
};

}  // namespace memfabric
