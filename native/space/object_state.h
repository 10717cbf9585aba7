// SPDX-License-Identifier: Apache-2.0
//
// The state of an object in this process: only between join and leave, while it is open, may its copies run.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/api.h"
#include "base/status.h"

namespace memfabric {

// Thread contract: any thread; `check` and `recheck` never block while the object is open.
class MF_API ObjectState {
public:
    explicit ObjectState(std::string object_name) : object_name_(std::move(object_name)) {}

    Status open();
    Status shut(Status code, const std::string& sentence);  // later checks fail with these
    bool close();                                           // for good; false if it was closed before
    void disown();  // in a forked child: the membership stayed with the parent. Touches one atomic only

    bool is_open() const { return state_.load(std::memory_order_seq_cst) == State::Open; }
    bool is_closed() const { return state_.load(std::memory_order_seq_cst) == State::Closed; }
    bool is_disowned() const { return state_.load(std::memory_order_seq_cst) == State::Disowned; }

    Status check() const { return is_open() ? Status::Ok : explain(); }
    Status recheck(std::uint64_t since) const;  // open, and not shut since that time of the revocation clock
    Status check_usable() const;                // not closed and not in a forked child

private:
    enum class State : std::uint8_t { Fresh, Open, Shut, Closed, Disowned };

    Status explain() const;
    Status lock_usable(std::unique_lock<std::mutex>& lock);
    void leave_open(State state);

    const std::string object_name_;
    std::atomic<State> state_{State::Fresh};
    std::atomic<std::uint64_t> shut_at_{0};  // on the revocation clock
    mutable std::mutex mutex_;               // for changes and for the sentence
    Status shut_code_ = Status::NotStarted;
    std::string shut_sentence_;
};

}  // namespace memfabric
