// SPDX-License-Identifier: Apache-2.0
//
// The worker that all moves of this process begin on. Nothing runs while nobody waits: whoever waits for a move takes
// the *turn*, calls UCX for everybody's moves until its own is done, and passes the turn on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/address.h"
#include "sync/event_count.h"
#include "ucx/context.h"
#include "ucx/endpoint.h"
#include "ucx/move.h"
#include "ucx/worker.h"

namespace memfabric::ucx {

// Thread contract: any thread. Cost of a small move that nobody disturbs: a lock, two atomic exchanges, a futex of
// nobody's.
class Initiator {
public:
    static Status make(const Context& context, std::unique_ptr<Initiator>& made);
    ~Initiator();
    Initiator(const Initiator&) = delete;
    Initiator& operator=(const Initiator&) = delete;

    void submit(UcxMove& move);                       // begins it, if nobody is at it already; never waits
    bool drive(UcxMove& move, Deadline until);        // until it is done, or so long; false: nothing of it has moved
    void retire(std::unique_ptr<Endpoint> endpoint);  // closes it, now or when somebody has the turn

    void look_again() {  // whoever has the turn: a move was cancelled
        if (driven_.load()) wake();
    }

    Worker& worker() { return *worker_; }
    void abandon() { worker_->abandon(); }  // in a forked child

private:
    Initiator() = default;
    bool take_turn() { return !driven_.exchange(true); }
    void leave_turn();
    void drive_for(UcxMove& move, Deadline until);
    bool step();
    bool close_retired();
    void sleep(Deadline until);
    void wake();

    std::unique_ptr<Worker> worker_;  // first: endpoints go before it
    OwnedFd wake_fd_;                 // for a sleeper with the turn
    std::atomic<bool> driven_{false};
    EventCount turn_left_{};  // or a move of somebody else's is done
    std::mutex mutex_;        // for the following, which become those after them
    std::vector<UcxMove*> submitted_;
    std::vector<std::unique_ptr<Endpoint>> retired_;
    std::vector<UcxMove*> moves_;  // with the turn, like the next
    std::vector<std::unique_ptr<Endpoint>> closing_;
};

}  // namespace memfabric::ucx
