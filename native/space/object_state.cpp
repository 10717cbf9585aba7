// SPDX-License-Identifier: Apache-2.0
#include "space/object_state.h"

#include "base/last_error.h"
#include "base/pause_point.h"
#include "memory/slot.h"

namespace memfabric {

Status ObjectState::open() {
    std::unique_lock<std::mutex> lock;
    if (const Status status = lock_usable(lock); status != Status::Ok) return status;
    state_.store(State::Open, std::memory_order_seq_cst);
    return Status::Ok;
}

// Looks twice: before the lock, which a thread of the parent may hold forever in a forked child, and under it, since
// what is closed stays closed.
Status ObjectState::lock_usable(std::unique_lock<std::mutex>& lock) {
    if (const Status status = check_usable(); status != Status::Ok) return status;
    PausePoint::reach("object_state.change");
    lock = std::unique_lock(mutex_);
    return check_usable();
}

Status ObjectState::shut(Status code, const std::string& sentence) {
    std::unique_lock<std::mutex> lock;
    if (const Status status = lock_usable(lock); status != Status::Ok) return status;
    shut_code_ = code;
    shut_sentence_ = sentence;
    leave_open(State::Shut);
    return Status::Ok;
}

bool ObjectState::close() {
    const std::lock_guard lock(mutex_);
    if (state_.load(std::memory_order_relaxed) == State::Closed) return false;
    leave_open(State::Closed);
    return true;
}

// The state before the clock, as in SlotTable::revoke.
void ObjectState::leave_open(State state) {
    state_.store(state, std::memory_order_seq_cst);
    shut_at_.store(RevocationClock::tick(), std::memory_order_seq_cst);
}

void ObjectState::disown() {
    if (state_.load(std::memory_order_seq_cst) != State::Closed)
        state_.store(State::Disowned, std::memory_order_seq_cst);
}

Status ObjectState::recheck(std::uint64_t since) const {
    if (const Status status = check(); status != Status::Ok) return status;
    if (shut_at_.load(std::memory_order_seq_cst) <= since) return Status::Ok;
    return fail(Status::NotStarted, "%s: this rank left and joined again during the copy; repeat the copy",
                object_name_.c_str());
}

Status ObjectState::check_usable() const {
    const State state = state_.load(std::memory_order_seq_cst);
    return state == State::Closed || state == State::Disowned ? explain() : Status::Ok;
}

Status ObjectState::explain() const {
    switch (state_.load(std::memory_order_seq_cst)) {
        case State::Disowned:  // without the mutex: a thread of the parent may have held it at the fork
            return fail(Status::NotInit,
                        "%s: this process was forked from the member that joined; call initialize() and create() here",
                        object_name_.c_str());
        case State::Closed:
            return fail(Status::InvalidParam, "%s: the handle is closed", object_name_.c_str());
        case State::Shut: {
            const std::lock_guard lock(mutex_);
            return fail(shut_code_, "%s", shut_sentence_.c_str());
        }
        case State::Fresh:
        case State::Open:
            break;
    }
    return fail(Status::NotStarted, "%s: this rank has not joined; call join() first", object_name_.c_str());
}

}  // namespace memfabric
