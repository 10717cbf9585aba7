// SPDX-License-Identifier: Apache-2.0
//
// The end of a move, for whoever waits for it: pending, then done with an outcome, once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "sync/futex.h"

namespace memfabric {

// A range of the peer's memory; of 0 bytes: none.
struct RemoteExtent {
    std::uint64_t address = 0;
    std::uint64_t size_bytes = 0;
};

struct Outcome {
    Status status = Status::Ok;
    std::size_t moved_bytes = 0;         // certainly in place
    std::string reason;                  // of a failure, without the name of the peer
    bool may_have_touched_more = false;  // of a failure: nobody can say how much of the target has changed
    RemoteExtent refused = {};           // what the peer does not serve; neighbouring pieces are refused as one

    // What became of both: the bytes of both, and the first failure.
    Outcome& operator+=(const Outcome& other) {
        moved_bytes += other.moved_bytes;
        may_have_touched_more |= other.may_have_touched_more;
        if (status == Status::Ok && other.status != Status::Ok) {
            status = other.status;
            reason = other.reason;
            refused = other.refused;
        }
        return *this;
    }
};

// Thread contract: `finish` once, by any thread; the rest from any thread. The one who finishes keeps a completion
// alive that others `listen` to or share; one that a single thread owns and waits for may go as soon as `wait` or
// `done` say so. Cost of one that nobody waits for: two atomic accesses.
class MF_API Completion {
public:
    using Timeout = std::optional<std::chrono::nanoseconds>;

    Completion() = default;
    Completion(const Completion&) = delete;
    Completion& operator=(const Completion&) = delete;

    void finish(Outcome outcome) {
        outcome_ = std::move(outcome);
        if (const std::uint32_t before = state_.exchange(kDone); before != kPending) wake(before);
    }

    bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
    const Outcome& outcome() const { return outcome_; }  // once done

    // Ok: it is done, whatever the outcome. Timeout and Interrupted otherwise, without a sentence.
    Status wait(Timeout timeout) const;
    void wait_out() const;  // for what ends soon in any case; not interrupted

    // What a transport has under way for it, until the end; the transport's own business, and freed with it at the
    // latest.
    class Work {
    public:
        virtual ~Work() = default;
    };
    Work* work() const { return work_.get(); }
    void set_work(std::unique_ptr<Work> work) { work_ = std::move(work); }

    // Runs `listener` when it is done, on the thread that finishes; at once if it is done already. It must not block.
    void listen(std::function<void()> listener);

private:
    static constexpr std::uint32_t kPending = 0;
    static constexpr std::uint32_t kAwaited = 1;   // somebody has to be woken
    static constexpr std::uint32_t kListened = 2;  // there are listeners, and perhaps somebody has to be woken
    static constexpr std::uint32_t kDone = 3;

    [[gnu::cold]] void wake(std::uint32_t before);

    mutable FutexWord state_{kPending};
    Outcome outcome_;  // written before the state becomes kDone
    std::unique_ptr<Work> work_;
    std::mutex mutex_;
    std::vector<std::function<void()>> listeners_;
};

}  // namespace memfabric
