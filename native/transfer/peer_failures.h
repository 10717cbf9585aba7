// SPDX-License-Identifier: Apache-2.0
//
// Peers that went away, in the order in which it was noticed, for whoever wants to be told. One list serves one life of
// an engine: what was noticed before its end is told, also after it.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>

#include "base/api.h"
#include "endpoint/instance_id.h"

namespace memfabric {

// Thread contract: any thread. `report` never blocks for long; it may be called by the service thread.
class MF_API PeerFailures {
public:
    void listen();                                                        // before this, reports are dropped
    void report(const std::string& session, const InstanceId& instance);  // one per instance counts
    bool wait(std::string& session);                                      // false once closed and all told
    void close();

private:
    static constexpr std::size_t kRemembered = 4096;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::string> sessions_;
    std::deque<InstanceId> reported_;
    bool listening_ = false;
    bool closed_ = false;
};

}  // namespace memfabric
