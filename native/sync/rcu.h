// SPDX-License-Identifier: Apache-2.0
//
// Read-copy-update in user space: who wants to unmap memory first makes it unreachable for newcomers, then waits for a
// grace period: until everybody who may still be using it has left.
//
//     reader: rcu::ReadGuard guard;  look things up; use them;        (any thread, never blocks, nests)
//     writer: take the thing away; rcu::synchronize(); free it;       (not inside a guard: it would wait for itself)
//
// What readers look up must be atomics that both sides access with seq_cst: then either the reader sees that the thing
// is gone, or the writer sees the reader's guard. Cost of a guard: one seq_cst store, one release store, no lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace memfabric::rcu {

// One per thread that ever held a guard; given back when the thread ends, never freed.
struct alignas(64) ReaderSlot {
    std::atomic<std::uint64_t> entered{0};  // the epoch the reader saw when it entered, 0 = not inside
    std::atomic<bool> taken{true};
    ReaderSlot* next = nullptr;
};

class ReadGuard {
public:
    ReadGuard();
    ~ReadGuard() {
        if (outermost_) slot_->entered.store(0, std::memory_order_release);
    }
    ReadGuard(const ReadGuard&) = delete;
    ReadGuard& operator=(const ReadGuard&) = delete;

    // Leaves and enters again, so that writers need not wait for the whole of a long operation. Everything looked up
    // before must be looked up again. No effect inside another guard.
    void renew();

private:
    ReaderSlot* slot_;
    bool outermost_;
};

// Returns when every guard that existed at the time of the call has been left or renewed. Spins briefly, then sleeps in
// growing steps of at most 0.5 ms: readers would pay for a wake-up, writers are rare and can wait.
void synchronize();

// The same in two steps, for writers that must not wait: what was taken away before `begin_grace_period` may be freed
// once `grace_period_ended` says so.
std::uint64_t begin_grace_period();
bool grace_period_ended(std::uint64_t period);

// Things that readers may still be using: kept until their grace period has ended, without waiting for it. Not
// thread-safe: used under its owner's lock.
class RetireList {
public:
    // After the thing was made unreachable. Frees what can be freed by now.
    void put(std::shared_ptr<const void> thing) {
        things_.push_back({begin_grace_period(), std::move(thing)});
        collect();
    }

    bool collect() {  // true if nothing is left
        std::erase_if(things_, [](const Retired& one) { return grace_period_ended(one.period); });
        return things_.empty();
    }

private:
    struct Retired {
        std::uint64_t period;
        std::shared_ptr<const void> thing;
    };
    std::vector<Retired> things_;
};

namespace detail {

inline std::atomic<std::uint64_t> epoch{1};
inline thread_local ReaderSlot* slot_of_thread = nullptr;
ReaderSlot* claim_slot();

}  // namespace detail

inline ReadGuard::ReadGuard() : slot_(detail::slot_of_thread) {
    if (slot_ == nullptr) [[unlikely]]
        slot_ = detail::claim_slot();
    outermost_ = slot_->entered.load(std::memory_order_relaxed) == 0;
    if (outermost_) slot_->entered.store(detail::epoch.load(std::memory_order_acquire), std::memory_order_seq_cst);
}

inline void ReadGuard::renew() {
    if (!outermost_) return;
    slot_->entered.store(0, std::memory_order_release);
    slot_->entered.store(detail::epoch.load(std::memory_order_acquire), std::memory_order_seq_cst);
}

}  // namespace memfabric::rcu
