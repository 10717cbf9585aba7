// SPDX-License-Identifier: Apache-2.0
//
// The ranks of one object on this host, as one of them sees it: barrier and all-gather of all, and of named subgroups.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "collectives/collective.h"
#include "collectives/control_page.h"
#include "collectives/host_liveness.h"

namespace memfabric {

// Thread contract: any thread; nothing holds a lock that a call of another kind needs. After `leave`, and in a forked
// child, every call fails.
class MF_API HostGroup {
public:
    struct Config {
        std::uint32_t rank;
        std::uint32_t rank_size;             // of the object, over all hosts
        std::vector<std::uint32_t> members;  // the ranks of this host, sorted, ours among them
        std::string object_name;             // as sentences call it: "shm object 3"
    };

    static Status join(std::shared_ptr<ControlPage> page, const Config& config, std::unique_ptr<HostGroup>& joined);

    Status barrier(std::chrono::nanoseconds timeout, InterHostExchange* inter_host);
    // `result` has room for rank_size × `bytes`.
    Status all_gather(const std::byte* data, std::uint32_t bytes, std::byte* result, std::chrono::nanoseconds timeout,
                      InterHostExchange* inter_host);
    // The members of a subgroup are ranks of this host; `size` and `rank` count inside it. Which ranks of the object
    // they are is known once each of them has arrived, and stays.
    Status subgroup(const std::string& name, std::uint32_t size, std::uint32_t rank, std::chrono::nanoseconds timeout,
                    Collective*& found);

    void declare_gone(std::uint32_t rank, const std::string& reason);
    void take_back(std::uint32_t rank) { liveness_->take_back(rank); }
    std::string complaint(std::uint32_t rank) const { return liveness_->complaint(rank); }
    Status check_usable() const;
    void leave();  // the others' rounds fail from now on; running calls of ours end. Idempotent
    void vanish() { liveness_->vanish(); }  // for tests

    const Config& config() const { return config_; }
    const HostLiveness& liveness() const { return *liveness_; }
    Collective& everybody() { return *everybody_; }

private:
    HostGroup(std::shared_ptr<ControlPage> page, const Config& config, std::unique_ptr<HostLiveness> liveness);

    const ForkGuard fork_guard_;
    const Config config_;
    const std::shared_ptr<ControlPage> page_;
    const std::unique_ptr<HostLiveness> liveness_;
    const std::unique_ptr<Collective> everybody_;
    std::atomic<bool> left_{false};
    std::mutex subgroups_mutex_;
    std::map<std::string, std::unique_ptr<Collective>> subgroups_;
};

}  // namespace memfabric
