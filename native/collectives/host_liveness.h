// SPDX-License-Identifier: Apache-2.0
//
// Who of this host is alive, told by the kernel: every rank's life word in the control page is a robust futex held by a
// thread of that rank's process. However the process ends, the kernel marks the word before anything else of it is gone
// and wakes whoever watches. Each rank watches its next living neighbour and passes the news on, so nobody polls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "collectives/control_page.h"
#include "sync/robust_futex.h"

namespace memfabric {

// One rank's part. Thread contract: every method from any thread; `gone` is cheap while nobody is gone.
class MF_API HostLiveness {
public:
    // Marks `rank` alive. `members` are all ranks of this host, sorted, `rank` among them.
    static Status start(std::shared_ptr<ControlPage> page, std::uint32_t rank, std::vector<std::uint32_t> members,
                        std::unique_ptr<HostLiveness>& started);
    ~HostLiveness();
    HostLiveness(const HostLiveness&) = delete;
    HostLiveness& operator=(const HostLiveness&) = delete;

    // Grows with every departure this process could know of: unchanged means that `gone` would find nobody new.
    std::uint32_t departures() const {
        return page_->departures().load() + heard_.load();  // sequentially consistent, as sleepers need it
    }
    // The two words, for kernels, which cannot call.
    const FutexWord& departures_word() const { return page_->departures(); }
    const FutexWord& declared_word() const { return declared_count_; }
    // Whether `gone` is true for anybody at all.
    bool anybody_gone() const { return page_->departures().load() + declared_count_.load() != 0; }
    bool gone(std::uint32_t rank) const;
    bool died(std::uint32_t rank) const;  // the kernel says so; the others that are gone may have left for that reason
    // The rank that is to blame for a departure: the one that is gone, or the one because of which it left.
    std::uint32_t cause_of(std::uint32_t rank) const;
    std::string why_gone(std::uint32_t rank) const;   // "rank 3 died: its process is gone"
    std::string complaint(std::uint32_t rank) const;  // the same, and what to do about it

    // Somebody else (the store, the exchange) knows that a rank is gone, of this host or another. The first word
    // counts.
    void declare_gone(std::uint32_t rank, const std::string& reason);
    void take_back(std::uint32_t rank);  // it was wrong: the very same life of that rank is there again
    void leave();                        // this rank says goodbye: the others see it as gone from now on. Idempotent
    void vanish();  // ends without a goodbye, as a killed process does: the kernel marks the word. For tests

private:
    HostLiveness(std::shared_ptr<ControlPage> page, std::uint32_t rank, std::vector<std::uint32_t> members);
    void keep();
    void watch();
    std::uint32_t next_living() const;
    void announce(std::uint32_t rank) const;
    void notify_groups() const;
    std::uint32_t first_cause() const;
    void end_thread();

    const ForkGuard fork_guard_;
    const std::shared_ptr<ControlPage> page_;
    const std::uint32_t rank_;
    const std::vector<std::uint32_t> members_;
    std::vector<std::atomic<bool>> declared_;  // by rank
    FutexWord heard_{0};                       // declarations so far
    FutexWord declared_count_{0};              // those that were not taken back
    mutable std::mutex reasons_mutex_;
    std::vector<std::string> reasons_;  // by rank
    RobustFutex robust_;                // held by the thread
    FutexWord phase_{0};                // the thread's: 1 = alive is marked, 2 = end
    std::atomic<bool> ended_{false};
    bool goodbye_ = true;  // written before the phase becomes 2, read after
    std::mutex ending_;
    std::thread thread_;
};

}  // namespace memfabric
