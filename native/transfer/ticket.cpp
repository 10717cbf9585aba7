// SPDX-License-Identifier: Apache-2.0
#include "transfer/ticket.h"

#include <utility>

#include "base/last_error.h"

namespace memfabric {

Status Ticket::run(const Stream::Task& work) {
    State expected = State::Waiting;
    if (!state_.compare_exchange_strong(expected, State::Running)) return Status::Ok;
    outcome_.status = work();
    if (outcome_.status != Status::Ok) outcome_.sentence = last_error();
    state_.store(State::Done, std::memory_order_release);
    return outcome_.status;
}

void Ticket::submitted(std::shared_ptr<Stream> stream, std::uint64_t sequence) {
    stream_ = std::move(stream);
    sequence_ = sequence;
}

bool Ticket::cancel() {
    State expected = State::Waiting;
    return state_.compare_exchange_strong(expected, State::Cancelled) || expected == State::Cancelled;
}

Status Ticket::wait(Stream::Timeout timeout) {
    if (!done()) {
        if (const Status status = stream_->wait_for(sequence_, timeout); status != Status::Ok) return status;
    }
    if (state_.load(std::memory_order_acquire) == State::Cancelled) {
        return fail(Status::NotStarted, "the transfer was cancelled before it began");
    }
    if (outcome_.status != Status::Ok) set_last_error(outcome_.sentence);
    return outcome_.status;
}

Status Ticket::notify_fd(int& fd) const { return stream_->notify_fd(sequence_, fd); }

}  // namespace memfabric
