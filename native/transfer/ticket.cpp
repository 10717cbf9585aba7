// SPDX-License-Identifier: Apache-2.0
#include "transfer/ticket.h"

#include <chrono>
#include <memory>

#include "base/cancellation.h"
#include "base/last_error.h"

namespace memfabric {

void Ticket::run(const Stream::Task& work) {
    State expected = State::Waiting;
    if (!state_.compare_exchange_strong(expected, State::Running)) return;
    const Cancellation scope([this] { return cut_.load(std::memory_order_acquire); });
    const Status status = Stream::run_cancellable(work);
    completion_.finish({status, 0, status == Status::Ok ? std::string() : last_error()});
}

bool Ticket::cancel() {
    State expected = State::Waiting;
    if (!state_.compare_exchange_strong(expected, State::Cancelled)) return expected == State::Cancelled;
    completion_.finish({Status::NotStarted, 0, "the transfer was cancelled before it began"});
    return true;
}

void Ticket::cut() {
    if (!cancel()) cut_.store(true, std::memory_order_release);
}

// In a forked child nobody will ever finish it.
Status Ticket::check_process() const {
    if (done() || !fork_guard_.in_forked_child()) return Status::Ok;
    return fail(Status::NotInit, "this transfer was submitted by the parent of this forked process, which has it");
}

Status Ticket::wait(Completion::Timeout timeout) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (const Status status = completion_.wait(timeout); status != Status::Ok) {
        if (status != Status::Timeout) return status;
        return fail(status, "the transfer has not ended after %.3f s; it goes on",
                    std::chrono::duration<double>(*timeout).count());
    }
    const Outcome& outcome = completion_.outcome();
    if (outcome.status != Status::Ok) set_last_error(outcome.reason);
    return outcome.status;
}

Status Ticket::listen(std::function<void()> listener) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    completion_.listen(std::move(listener));
    return Status::Ok;
}

}  // namespace memfabric
