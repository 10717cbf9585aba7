// SPDX-License-Identifier: Apache-2.0
//
// What peers' programs have told ours, in the order in which it came, until somebody takes it: whoever asks, an event
// loop, or the program's callback. One queue serves one life of an engine: what came before its end can be taken
// after it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/notifier.h"
#include "base/status.h"
#include "endpoint/frames.h"

namespace memfabric {

struct Notification {
    std::string session;  // of the sender, as peers reach it
    Bytes data;
};

// Thread contract: any thread; only `wait` waits. `put` is the service thread's.
class MF_API Notifications {
public:
    NotifyVerdict put(const std::string& session, Bytes data);

    // The oldest `most`. ResourceInUse while the callback takes them.
    Status take(std::size_t most, std::vector<Notification>& taken);
    // The next one, while they are the callback's; false once the queue is closed and nothing is left for it.
    bool wait(Notification& taken);
    void give_to_callback(bool given);  // from now on `wait` takes them, or `take` does

    // Tells the notifier once: when there is something to take, when somebody else takes it from now on, at the end, or
    // when `wake` is called; perhaps at once.
    void listen(std::shared_ptr<Notifier> notifier, std::uint64_t token);
    void wake();
    bool closed() const;
    void close();

private:
    Notification pop();
    void wake_locked();

    const ForkGuard fork_guard_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Notification> queue_;
    std::size_t data_bytes_ = 0;
    bool given_ = false;  // to the callback
    bool closed_ = false;
    std::vector<std::pair<std::shared_ptr<Notifier>, std::uint64_t>> listeners_;
};

}  // namespace memfabric
