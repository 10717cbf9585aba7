// SPDX-License-Identifier: Apache-2.0
#include "collectives/collective.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/cpu.h"
#include "base/interruption.h"
#include "base/last_error.h"
#include "base/limits.h"
#include "base/notice.h"
#include "base/pause_point.h"
#include "memory/layout.h"

namespace memfabric {
namespace {

constexpr std::uint64_t kOneMember = 1;
constexpr std::uint64_t kOneGather = std::uint64_t{1} << 16;
constexpr std::uint32_t round_of(std::uint64_t arrivals) { return static_cast<std::uint32_t>(arrivals >> 32); }
constexpr std::uint64_t members_of(std::uint64_t arrivals) { return arrivals & 0xffff; }
constexpr std::uint64_t gathers_of(std::uint64_t arrivals) { return arrivals >> 16 & 0xffff; }
constexpr std::uint64_t unit_of(std::uint32_t bytes) { return bytes == 0 ? kOneMember : kOneMember + kOneGather; }
constexpr std::uint64_t start_of(std::uint32_t round) { return std::uint64_t{round} << 32; }

constexpr std::chrono::hours kUntilNotified{24};  // the leader has a deadline, and if it dies all are notified

std::string call_of(std::uint32_t bytes) {
    return bytes == 0 ? "called barrier" : "brought " + std::to_string(bytes) + " bytes to an all-gather";
}

}  // namespace

Collective::Collective(Config config)
    : config_(std::move(config)),
      group_(*config_.group),
      slots_(config_.page->member_slots(group_)),
      count_(config_.present.size()),
      adaptive_wait_(config_.present.size() > usable_cores()) {}

Status Collective::claim() {
    std::uint32_t nobody = 0;
    const std::uint32_t us = config_.rank + 1;
    if (slots_[config_.slot].rank.compare_exchange_strong(nobody, us) || nobody == us) return Status::Ok;
    return fail(Status::Duplicated, "%s: rank_id %u is taken by rank %u of the object, this is rank %u",
                config_.name.c_str(), config_.slot, nobody - 1, config_.rank);
}

Status Collective::barrier(Clock::time_point until, InterHostExchange* inter_host) {
    return pass(nullptr, 0, nullptr, until, inter_host);
}

Status Collective::all_gather(const std::byte* data, std::uint32_t bytes, std::byte* result, Clock::time_point until,
                              InterHostExchange* inter_host) {
    return pass(data, bytes, result, until, inter_host);
}

Status Collective::pass(const std::byte* data, std::uint32_t bytes, std::byte* result, Clock::time_point until,
                        InterHostExchange* inter_host) {
    if (const Status status = one_call_.lock(until); status != Status::Ok) {
        if (status == Status::Interrupted) return status;
        return fail(status, "%s: another call of rank %u has been in it all the time", config_.name.c_str(),
                    config_.rank);
    }
    const TimedLockGuard guard(one_call_);
    if (unseen_) [[unlikely]] {
        Waiting earlier = *unseen_;
        earlier.until = until;
        if (const Status status = follow_to_the_end(earlier); status != Status::Ok) return status;
        unseen_.reset();
        if (earlier.bytes == bytes) return conclude(earlier.round, bytes, result);
    }
    if (config_.liveness->anybody_gone()) [[unlikely]] {
        if (const Status status = check_departures(); status != Status::Ok) return status;
    }
    // No round can end without us, so this is the round we arrive in.
    const std::uint32_t round = round_of(group_.arrivals.load(std::memory_order_relaxed));
    const std::uint32_t parity = round & 1;
    if (bytes != 0) std::memcpy(config_.page->mailbox(group_, config_.size, config_.slot, parity), data, bytes);
    const Waiting waiting{round, bytes, Clock::now(), until, inter_host != nullptr};
    if (const Status status = arrive(waiting, inter_host); status != Status::Ok) return status;
    return conclude(round, bytes, result);
}

// Everybody's mailboxes of the round's parity are safe until we arrive in the next round.
Status Collective::conclude(std::uint32_t round, std::uint32_t bytes, std::byte* result) {
    if (const Status status = verdict(round, bytes); status != Status::Ok || bytes == 0) return status;
    for (std::uint32_t slot = 0; slot < config_.size; ++slot) {
        std::memcpy(result + std::size_t{slot} * bytes, config_.page->mailbox(group_, config_.size, slot, round & 1),
                    bytes);
    }
    return Status::Ok;
}

Status Collective::arrive(const Waiting& waiting, InterHostExchange* inter_host) {
    const std::uint32_t round = waiting.round;
    MemberSlot& own = slots_[config_.slot];
    own.bytes[round & 1].store(waiting.bytes, std::memory_order_relaxed);
    own.arrived.store(round + 1, std::memory_order_relaxed);
    const std::uint64_t unit = unit_of(waiting.bytes);
    const std::uint64_t arrivals = group_.arrivals.fetch_add(unit, std::memory_order_acq_rel) + unit;
    const bool full = members_of(arrivals) == count_;
    if (full && inter_host == nullptr) {
        publish(round, arrivals);
        return Status::Ok;
    }
    if (full) {
        group_.full.store(round + 1);
        group_.changed.notify_all();
    }
    return inter_host != nullptr && config_.slot == config_.present.front() ? lead(waiting, *inter_host)
                                                                            : follow(waiting);
}

// Waits for the end of the round.
Status Collective::follow(const Waiting& waiting) {
    const Status status = wait([&] { return group_.published.load() != waiting.round; }, waiting);
    if (status == Status::Ok) return Status::Ok;
    if (withdraw(waiting)) {
        return status == Status::Timeout ? timed_out(waiting.round, Clock::now() - waiting.since) : status;
    }
    if (status != Status::Interrupted) return follow_to_the_end(waiting);
    unseen_ = waiting;
    return status;
}

// All of this host have arrived. If the leader is among the other hosts, its outcome is ours, and it has a deadline.
Status Collective::follow_to_the_end(const Waiting& waiting) {
    const std::uint32_t leader = config_.present.front();
    const auto ended = [&] { return group_.published.load() != waiting.round; };
    while (!ended()) {
        if (config_.liveness->gone(leader)) return ended() ? Status::Ok : check_departures();
        group_.changed.wait_unless([&] { return ended() || config_.liveness->gone(leader); },
                                   Interruption::slice(kUntilNotified));
        if (Interruption::requested()) {
            unseen_ = waiting;
            return Status::Interrupted;
        }
    }
    return Status::Ok;
}

// Waits for the members of this host, then exchanges with the other hosts and publishes what came of it.
Status Collective::lead(const Waiting& waiting, InterHostExchange& inter_host) {
    const std::uint32_t round = waiting.round;
    const std::uint32_t bytes = waiting.bytes;
    const std::uint32_t parity = round & 1;
    const auto all_here = [&] { return group_.full.load() == round + 1; };
    const Status came = wait(all_here, waiting);
    if (came != Status::Ok && withdraw(waiting)) {
        return came == Status::Timeout ? timed_out(round, Clock::now() - waiting.since) : came;
    }
    std::vector<std::byte> ours(count_ * bytes);
    std::vector<std::byte> everybody(std::size_t{config_.size} * bytes);
    const std::string complaint = unequal(parity);
    for (std::size_t i = 0; i < count_ && complaint.empty() && bytes != 0; ++i) {
        std::memcpy(ours.data() + i * bytes, config_.page->mailbox(group_, config_.size, config_.present[i], parity),
                    bytes);
    }
    PausePoint::reach("collective.wait");  // for the other hosts
    const Status met = came == Status::Interrupted
                           ? came
                           : inter_host.exchange(bytes, complaint, ours.data(), everybody.data(), waiting.until);
    if (met == Status::Ok) {
        for (std::uint32_t slot = 0; slot < config_.size && bytes != 0; ++slot) {
            if (std::ranges::binary_search(config_.present, slot)) continue;
            std::memcpy(config_.page->mailbox(group_, config_.size, slot, parity),
                        everybody.data() + std::size_t{slot} * bytes, bytes);
        }
    } else {
        const std::string sentence = met == Status::Interrupted
                                         ? config_.name + ": rank " + std::to_string(config_.rank) +
                                               ", which meets the other hosts for this one, was interrupted; call again"
                                         : last_error();
        const std::size_t length = sentence.copy(group_.verdict_text[parity], kMaxVerdictText);
        group_.verdict_text[parity][length] = '\0';
    }
    const Status verdict = met == Status::Interrupted ? Status::Error : met;
    group_.verdict[parity].store(static_cast<std::uint32_t>(verdict), std::memory_order_relaxed);
    group_.arrivals.store(start_of(round + 1), std::memory_order_release);
    group_.published.store(round + 1);
    group_.changed.notify_all();
    return met == Status::Interrupted ? met : Status::Ok;  // the verdict is read like everybody's
}

// `arrivals` is the full count of that round. May be done by several members at once; the first one wins.
void Collective::publish(std::uint32_t round, std::uint64_t arrivals) {
    const std::uint64_t gathers = gathers_of(arrivals);
    if (round == 0) group_.established.store(1, std::memory_order_release);
    const Status verdict = gathers == 0 || gathers == count_ ? Status::Ok : Status::InvalidParam;
    group_.verdict[round & 1].store(static_cast<std::uint32_t>(verdict), std::memory_order_relaxed);
    group_.arrivals.compare_exchange_strong(arrivals, start_of(round + 1), std::memory_order_acq_rel);
    std::uint32_t expected = round;
    group_.published.compare_exchange_strong(expected, round + 1);
    group_.changed.notify_all();
}

// False if the round has all its members: complete (and published, if it needs no other hosts).
bool Collective::withdraw(const Waiting& waiting) {
    std::uint64_t arrivals = group_.arrivals.load();
    while (true) {
        if (round_of(arrivals) != waiting.round) {
            std::uint32_t expected = waiting.round;  // whoever reset the arrivals may have died before publishing
            group_.published.compare_exchange_strong(expected, waiting.round + 1);
            group_.changed.notify_all();
            return false;
        }
        if (members_of(arrivals) == count_) {
            if (!waiting.across_hosts) publish(waiting.round, arrivals);
            return false;
        }
        if (group_.arrivals.compare_exchange_weak(arrivals, arrivals - unit_of(waiting.bytes))) {
            slots_[config_.slot].arrived.store(waiting.round, std::memory_order_relaxed);
            return true;
        }
    }
}

// Until `done()`; NotConnected when somebody who is needed is gone, Timeout, Interrupted. Who waits long says for whom.
template <typename Done>
Status Collective::wait(Done done, const Waiting& waiting) {
    if (adaptive_wait_.poll(done)) return Status::Ok;
    PausePoint::reach("collective.wait");
    std::chrono::seconds interval = kFirstWaitingNotice;  // the intervals grow
    auto notice_at = waiting.since + interval;
    while (!done()) {
        const std::uint32_t departures = config_.liveness->departures();
        if (departures != 0) {
            const Status status = check_departures();
            if (status != Status::Ok) return done() ? Status::Ok : status;
        }
        const auto now = Clock::now();
        if (now >= waiting.until) return Status::Timeout;
        if (now >= notice_at) {
            tell_missing(waiting, now);
            interval = std::min(2 * interval, kLongestWaitingPause);
            notice_at = now + interval;
        }
        group_.changed.wait_unless([&] { return done() || config_.liveness->departures() != departures; },
                                   Interruption::slice(std::min(waiting.until, notice_at) - now));
        if (Interruption::requested()) return Status::Interrupted;
    }
    return Status::Ok;
}

Status Collective::verdict(std::uint32_t round, std::uint32_t bytes) {
    const std::uint32_t parity = round & 1;
    const auto published = static_cast<Status>(group_.verdict[parity].load(std::memory_order_relaxed));
    if (published == Status::Ok && bytes == 0) return Status::Ok;
    if (published != Status::Ok && group_.verdict_text[parity][0] != '\0') {
        return fail(published, "%s", group_.verdict_text[parity]);
    }
    const std::string complaint = unequal(parity);
    return complaint.empty() ? Status::Ok : fail(Status::InvalidParam, "%s", complaint.c_str());
}

// A sentence if the members of this host did not all do the same in the round.
std::string Collective::unequal(std::uint32_t parity) const {
    const std::uint32_t first = slots_[config_.present.front()].bytes[parity].load(std::memory_order_relaxed);
    for (const std::uint32_t slot : config_.present) {
        const std::uint32_t theirs = slots_[slot].bytes[parity].load(std::memory_order_relaxed);
        if (theirs == first) continue;
        return config_.name + ": " + rank_at(config_.present.front()) + " " + call_of(first) + ", " + rank_at(slot) +
               " " + call_of(theirs) + "; all ranks must do the same";
    }
    return {};
}

// NotConnected if one of those who are needed is gone. Names a dead one rather than those who left because of it.
Status Collective::check_departures() {
    const bool members_known = config_.subgroup && group_.established.load(std::memory_order_acquire) != 0;
    const std::uint32_t count = members_known ? config_.size : config_.page->rank_size();
    std::uint32_t gone = kNoRank;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t rank = members_known ? slots_[i].rank.load() - 1 : i;
        if (config_.liveness->died(rank)) {
            gone = rank;
            break;
        }
        if (gone == kNoRank && config_.liveness->gone(rank)) gone = rank;
    }
    if (gone == kNoRank) return Status::Ok;
    return fail(Status::NotConnected, "%s: %s", config_.name.c_str(),
                config_.liveness->complaint(config_.liveness->cause_of(gone)).c_str());
}

Collective::Missing Collective::missing_in(std::uint32_t round) const {
    Missing missing;
    for (const std::uint32_t slot : config_.present) {
        if (slot == config_.slot || slots_[slot].arrived.load() == round + 1) continue;
        if (++missing.count <= kShownRanks) missing.ranks += (missing.ranks.empty() ? "" : ", ") + rank_at(slot);
    }
    if (missing.count > kShownRanks) missing.ranks += ", ...";
    return missing;
}

void Collective::tell_missing(const Waiting& waiting, Clock::time_point now) const {
    const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
    const Missing missing = missing_in(waiting.round);
    notice("%s: waiting for %.0f s now, at most %.0f s: %zu of %zu ranks have not called %s: %s", config_.name.c_str(),
           seconds(now - waiting.since), seconds(waiting.until - waiting.since), missing.count,
           static_cast<std::size_t>(count_), waiting.bytes == 0 ? "barrier" : "all_gather",
           missing.count == 0 ? "other hosts are waited for" : missing.ranks.c_str());
}

Status Collective::timed_out(std::uint32_t round, Clock::duration waited) {
    const Missing missing = missing_in(round);
    return fail(Status::Timeout, "%s: %zu of %zu ranks did not arrive within %.2f s: %s", config_.name.c_str(),
                missing.count, static_cast<std::size_t>(count_), std::chrono::duration<double>(waited).count(),
                missing.ranks.c_str());
}

std::string Collective::rank_at(std::uint32_t slot) const {
    if (!config_.subgroup) return "rank " + std::to_string(slot);
    const std::uint32_t rank = slots_[slot].rank.load();
    const std::string of_object = rank == 0 ? "" : " (rank " + std::to_string(rank - 1) + " of the object)";
    return "rank_id " + std::to_string(slot) + of_object;
}

}  // namespace memfabric
