// SPDX-License-Identifier: Apache-2.0
//
// A set of ranks of one host that meet round after round: barrier and all-gather in shared memory.
//
// A member writes what it brings into its mailbox and adds itself to the group's arrivals. The last one resets them,
// publishes the round and wakes whoever sleeps. Budget when the others are there already: no system call, no lock that
// another process could hold, two contended cache lines.
//
// All or nothing: whoever gives up (time-out, somebody is gone) takes its arrival back, unless the round has become
// complete meanwhile: then it has succeeded. A round that is complete but not published, because the last one died in
// between, is published by whoever notices. So in every round either all living members succeed or none does, and a
// member that gave up arrives anew, in the same round, with its next call. A member whose signal handler raises gives
// up as well; if the round is complete by then, its result is kept for the next call.
//
// Across hosts: when all members here have arrived, the lowest rank of this host (the leader) exchanges with the
// other hosts through `InterHostExchange` and publishes the outcome, a failure too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "collectives/control_page.h"
#include "collectives/host_liveness.h"
#include "sync/backoff.h"
#include "sync/timed_lock.h"

namespace memfabric {

class MF_API InterHostExchange {
public:
    virtual ~InterHostExchange() = default;
    // On the leader's thread; may block until `until`. `ours` has `bytes` from every member here, `everybody` takes as
    // much from every rank; both in order of rank, both null for a barrier (`bytes` 0). A `complaint` that is not empty
    // has to fail the round on all hosts. A failure leaves its sentence in the last error.
    virtual Status exchange(std::uint32_t bytes, const std::string& complaint, const std::byte* ours,
                            std::byte* everybody, std::chrono::steady_clock::time_point until) = 0;
};

// One member's part. Thread contract: any thread; calls of one process are served one after the other.
class MF_API Collective {
public:
    using Clock = std::chrono::steady_clock;

    struct Config {
        std::shared_ptr<ControlPage> page;
        const HostLiveness* liveness;
        GroupSlot* group;
        std::uint32_t size;                  // slots: those of other hosts have a mailbox only
        std::vector<std::uint32_t> present;  // slots of this host, sorted
        std::uint32_t slot;                  // ours
        std::uint32_t rank;                  // ours, in the object
        bool subgroup;                       // its members are known when each of them has arrived once
        std::string name;                    // as sentences call it: "barrier of shm object 3"
    };

    explicit Collective(Config config);

    Status barrier(Clock::time_point until, InterHostExchange* inter_host = nullptr);
    // `result` has room for `bytes` of every slot.
    Status all_gather(const std::byte* data, std::uint32_t bytes, std::byte* result, Clock::time_point until,
                      InterHostExchange* inter_host = nullptr);
    Status claim();  // takes the slot of a subgroup: Duplicated when another rank has it

    std::uint32_t size() const { return config_.size; }
    std::uint32_t slot() const { return config_.slot; }

private:
    struct Waiting {
        std::uint32_t round;
        std::uint32_t bytes;  // of our part; 0 = a barrier
        Clock::time_point since;
        Clock::time_point until;
        bool across_hosts;
    };

    Status pass(const std::byte* data, std::uint32_t bytes, std::byte* result, Clock::time_point until,
                InterHostExchange* inter_host);
    Status arrive(const Waiting& waiting, InterHostExchange* inter_host);
    Status follow(const Waiting& waiting);
    Status follow_to_the_end(const Waiting& waiting);
    Status lead(const Waiting& waiting, InterHostExchange& inter_host);
    Status conclude(std::uint32_t round, std::uint32_t bytes, std::byte* result);
    template <typename Done>
    Status wait(Done done, const Waiting& waiting);
    bool withdraw(const Waiting& waiting);
    void publish(std::uint32_t round, std::uint64_t arrivals);
    Status verdict(std::uint32_t round, std::uint32_t bytes);
    Status check_departures();
    struct Missing {
        std::size_t count = 0;
        std::string ranks;  // the first of them
    };
    Missing missing_in(std::uint32_t round) const;
    void tell_missing(const Waiting& waiting, Clock::time_point now) const;
    Status timed_out(std::uint32_t round, Clock::duration waited);
    std::string unequal(std::uint32_t parity) const;
    std::string rank_at(std::uint32_t slot) const;

    const Config config_;
    GroupSlot& group_;
    MemberSlot* const slots_;
    const std::uint64_t count_;   // members here
    TimedLock one_call_;          // calls of one process
    AdaptiveWait adaptive_wait_;  // under `one_call_`
    // Under `one_call_`: a round that has all its members, us too, but whose end we have not seen because a signal
    // handler raised. The next call that does the same takes its result.
    std::optional<Waiting> unseen_;
};

}  // namespace memfabric
