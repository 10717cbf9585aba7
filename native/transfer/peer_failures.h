// SPDX-License-Identifier: Apache-2.0
//
// Peers that went away, in the order in which it was noticed, for whoever wants to be told. One list serves one life of
// an engine: what was noticed before its end is told, also after it. Who comes back may go away again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "base/api.h"
#include "endpoint/instance_id.h"

namespace memfabric {

// Thread contract: any thread. `report` never blocks for long; it may be called by the service thread.
class MF_API PeerFailures {
public:
    void listen();  // before this, reports are dropped
    // A link to a peer begins now: what `report` says at its end.
    std::uint64_t begin_link();
    // The link that began then has ended. One report of an instance covers all of its links that had begun.
    void report(const std::string& session, const InstanceId& instance, std::uint64_t began);
    bool wait(std::string& session);  // false once closed and all told
    void close();

private:
    struct Report {
        InstanceId instance;
        std::uint64_t at;
    };
    static constexpr std::size_t kRemembered = 4096;
    static constexpr std::size_t kMostUntold = 4096;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::string> sessions_;
    std::deque<Report> reported_;  // the last one of each instance, oldest first
    std::uint64_t events_ = 0;     // beginnings and reports so far
    bool listening_ = false;
    bool closed_ = false;
};

}  // namespace memfabric
