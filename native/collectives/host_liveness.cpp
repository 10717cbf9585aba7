// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_liveness.h"

#include <linux/futex.h>
#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "base/blocked_signals.h"
#include "base/last_error.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kAbsent = 0;
constexpr std::uint32_t kLeft = FUTEX_TID_MASK;  // no thread has this number
constexpr auto kLongestWatch = 1s;  // the kernel wakes one watcher of a dead word; if that one dies too, others look
constexpr std::uint32_t kNobody = UINT32_MAX;

bool is_gone(std::uint32_t word) { return (word & FUTEX_OWNER_DIED) != 0 || (word & FUTEX_TID_MASK) == kLeft; }
bool is_alive(std::uint32_t word) { return word != kAbsent && !is_gone(word); }

}  // namespace

Status HostLiveness::start(std::shared_ptr<ControlPage> page, std::uint32_t rank, std::vector<std::uint32_t> members,
                           std::unique_ptr<HostLiveness>& started) {
    if (page->life(rank).load() != kAbsent) {
        return fail(Status::Duplicated, "rank %u has been in this control page before", rank);
    }
    std::unique_ptr<HostLiveness> liveness(new HostLiveness(std::move(page), rank, std::move(members)));
    try {
        const BlockedSignals blocked;
        liveness->thread_ = std::thread([self = liveness.get()] { self->keep(); });
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "cannot start the thread that shows rank %u alive: %s", rank, error.what());
    }
    while (liveness->phase_.load() == 0) futex_wait(liveness->phase_, 0, kLongestWatch);
    started = std::move(liveness);
    return Status::Ok;
}

HostLiveness::HostLiveness(std::shared_ptr<ControlPage> page, std::uint32_t rank, std::vector<std::uint32_t> members)
    : page_(std::move(page)),
      rank_(rank),
      members_(std::move(members)),
      declared_(page_->rank_size()),
      reasons_(page_->rank_size()),
      robust_(page_->life(rank)) {}

HostLiveness::~HostLiveness() {
    if (fork_guard_.in_forked_child()) {
        ForkGuard::abandon(thread_);
        return;
    }
    leave();
}

void HostLiveness::keep() {
    pthread_setname_np(pthread_self(), "mf-liveness");
    FutexWord& own = page_->life(rank_);
    const bool kernel_tells = robust_.hold();
    futex_wake_all(own);
    std::uint32_t starting = 0;
    phase_.compare_exchange_strong(starting, 1);
    futex_wake_all(phase_);
    while (phase_.load() == 1) watch();
    ended_.store(true);
    if (!goodbye_) {
        if (kernel_tells) return;
        own.fetch_or(FUTEX_OWNER_DIED);  // as the kernel would; there are tests of deaths on emulators, too
        return futex_wake_all(own);
    }
    own.store(kLeft);
    robust_.let_go();
    futex_wake_all(own);  // my watcher
    announce(rank_);
}

// Sleeps until the next living neighbour is gone.
void HostLiveness::watch() {
    const std::uint32_t neighbour = next_living();
    if (neighbour == kNobody) return futex_wait(phase_, 1, kLongestWatch);
    FutexWord& word = page_->life(neighbour);
    std::uint32_t seen = word.load();
    if (seen == kAbsent) return futex_wait(word, kAbsent, kLongestWatch);  // it is just arriving
    while (is_alive(seen)) {
        if (phase_.load() != 1) return;
        // The kernel wakes the watchers of a dead thread's word only if this bit is set.
        if ((seen & FUTEX_WAITERS) == 0 && !word.compare_exchange_weak(seen, seen | FUTEX_WAITERS)) continue;
        futex_wait(word, seen | FUTEX_WAITERS, kLongestWatch);
        seen = word.load();
    }
    futex_wake_all(word);  // the kernel woke one watcher only; there are several while ranks come and go
}

// Announces whoever is found gone on the way.
std::uint32_t HostLiveness::next_living() const {
    const auto own = std::ranges::find(members_, rank_) - members_.begin();
    const auto count = static_cast<std::ptrdiff_t>(members_.size());
    for (std::ptrdiff_t step = 1; step < count; ++step) {
        const std::uint32_t rank = members_[static_cast<std::size_t>((own + step) % count)];
        if (!is_gone(page_->life(rank).load())) return rank;
        announce(rank);
    }
    return kNobody;
}

// Once for each rank, by whoever finds it gone first.
void HostLiveness::announce(std::uint32_t rank) const {
    if (page_->announced(rank).exchange(1) != 0) return;
    page_->departures().fetch_add(1);
    notify_groups();
}

void HostLiveness::notify_groups() const {
    for (std::uint32_t index = 0; index < page_->group_count(); ++index) {
        GroupSlot& group = page_->group(index);
        if (group.state.load() == GroupSlot::kFree) break;
        group.changed.notify_all();
    }
}

bool HostLiveness::gone(std::uint32_t rank) const {
    return declared_[rank].load() || is_gone(page_->life(rank).load());
}

bool HostLiveness::died(std::uint32_t rank) const { return (page_->life(rank).load() & FUTEX_OWNER_DIED) != 0; }

std::string HostLiveness::why_gone(std::uint32_t rank) const {
    if (died(rank)) {
        return "rank " + std::to_string(rank) + " died: its process is gone";
    }
    if (is_gone(page_->life(rank).load())) {
        return "rank " + std::to_string(rank) + " has left: it destroyed the object";
    }
    const std::lock_guard lock(reasons_mutex_);
    if (!reasons_[rank].empty()) return reasons_[rank];
    return "rank " + std::to_string(rank) + " is gone: another rank left because of it";
}

// Ranks come from the store, where anybody may write: one that the object does not have has no place on the page.
std::string HostLiveness::complaint(std::uint32_t rank) const {
    if (rank >= declared_.size()) return "rank " + std::to_string(rank) + " does not belong to the object";
    const bool may_return = !is_gone(page_->life(rank).load());
    return why_gone(rank) +
           (may_return ? "; if that rank was only silent, the object is whole again when it is back; otherwise "
                       : "; ") +
           "destroy the object and create it again without it, or with its successor";
}

std::uint32_t HostLiveness::cause_of(std::uint32_t rank) const {
    const std::uint32_t cause = page_->cause(rank).load();
    return cause == 0 || died(rank) ? rank : cause - 1;
}

// As the control page has it. Death comes before any other cause: those who left may have left because of it.
std::uint32_t HostLiveness::first_cause() const {
    std::uint32_t first = 0;
    for (std::uint32_t rank = 0; rank < page_->rank_size(); ++rank) {
        if (rank == rank_ || !gone(rank)) continue;
        const std::uint32_t cause = cause_of(rank) + 1;
        if (died(cause - 1)) return cause;
        if (first == 0 && cause != rank_ + 1) first = cause;
    }
    return first;
}

void HostLiveness::declare_gone(std::uint32_t rank, const std::string& reason) {
    if (rank >= declared_.size()) return;
    {
        const std::lock_guard lock(reasons_mutex_);
        if (declared_[rank].load()) return;
        reasons_[rank] = reason;
    }
    declared_[rank].store(true);
    declared_count_.fetch_add(1);
    heard_.fetch_add(1);
    notify_groups();
}

void HostLiveness::take_back(std::uint32_t rank) {
    if (rank >= declared_.size()) return;
    const std::lock_guard lock(reasons_mutex_);
    if (!declared_[rank].exchange(false)) return;
    reasons_[rank].clear();
    declared_count_.fetch_sub(1);
}

void HostLiveness::leave() {
    if (!fork_guard_.in_forked_child() && departures() != 0) {
        std::uint32_t none = 0;
        page_->cause(rank_).compare_exchange_strong(none, first_cause());
    }
    end_thread();
}

void HostLiveness::vanish() {
    goodbye_ = false;
    end_thread();
}

void HostLiveness::end_thread() {
    if (fork_guard_.in_forked_child()) return;
    const std::lock_guard lock(ending_);
    if (!thread_.joinable()) return;
    phase_.store(2);
    // The thread sleeps on its own phase or on a neighbour's word: wake it at both until it has seen.
    while (!ended_.load()) {
        futex_wake_all(phase_);
        for (const std::uint32_t rank : members_) {
            if (rank != rank_) futex_wake_all(page_->life(rank));
        }
        futex_wait(phase_, 2, 200us);
    }
    thread_.join();
}

}  // namespace memfabric
