// SPDX-License-Identifier: Apache-2.0
//
// The connections on which an initiator gave up writes that their targets have not answered, until each target has
// raised their fences (tcp/fence.h). They belong to the process: the next write may take another transport.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "base/fork_guard.h"
#include "endpoint/instance_id.h"

namespace memfabric::tcp {

// Thread contract: any thread; nothing blocks. A target that never comes back keeps its few numbers until the end.
class GivenUp {
public:
    static GivenUp& process();

    // Before the write's failure is told.
    void add(const InstanceId& target, std::uint64_t number);
    // What the next connection to it must say first. One load if there is nothing for anybody.
    std::vector<std::uint64_t> of(const InstanceId& target) const;
    void settle(const InstanceId& target, std::span<const std::uint64_t> numbers);  // the target has said so

private:
    friend void hold_across_forks<GivenUp>();
    GivenUp() { hold_across_forks<GivenUp>(); }
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }
    void begin_in_child();

    std::atomic<std::size_t> targets_{0};  // that have numbers
    mutable std::mutex mutex_;             // for the following
    std::map<InstanceId, std::vector<std::uint64_t>> numbers_;
};

}  // namespace memfabric::tcp
