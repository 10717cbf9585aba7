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

#include "base/api.h"
#include "base/traffic.h"

namespace memfabric::rcu {

// One per thread that ever held a guard; given back when the thread ends, never freed.
struct alignas(64) ReaderSlot {
    std::atomic<std::uint64_t> entered{0};  // the epoch the reader saw when it entered, 0 = not inside
    std::atomic<bool> taken{true};
    ReaderSlot* next = nullptr;
    // Here because whoever moves bytes holds a guard, and finding what belongs to the thread costs as much as counting.
    TrafficCounters traffic;
};

class ReadGuard {
public:
    ReadGuard();
    ~ReadGuard() {
        if (outermost_) slot_->entered.store(0, std::memory_order_release);
    }
    ReadGuard(const ReadGuard&) = delete;
    ReadGuard& operator=(const ReadGuard&) = delete;

    // Leaves early: for operations too long for writers to wait for, which go on with what they have pinned. No effect
    // inside another guard.
    void leave() {
        if (std::exchange(outermost_, false)) slot_->entered.store(0, std::memory_order_release);
    }

    TrafficCounters& traffic() const { return slot_->traffic; }  // this thread's, also after `leave`

private:
    ReaderSlot* slot_;
    bool outermost_;
};

// What all threads of this process have moved so far, those that ended included.
MF_API TrafficCounters::Amount traffic(Route route, Operation operation, std::size_t size_class);

// Returns when every guard that existed at the time of the call has been left. Spins briefly, then sleeps in
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

// A value that readers look at inside a guard and writers replace as a whole. Writers take turns: whatever changes it
// is called under its owner's lock.
template <typename Value>
class Published {
public:
    Published() : current_(new Value()) {}
    ~Published() { delete current_.load(std::memory_order_relaxed); }
    Published(const Published&) = delete;
    Published& operator=(const Published&) = delete;

    const Value& read() const { return *current_.load(std::memory_order_seq_cst); }

    void replace(std::unique_ptr<const Value> next) {
        const Value* before = current_.exchange(next.release(), std::memory_order_seq_cst);
        retired_.put(std::shared_ptr<const Value>(before));
    }

    template <typename Change>
    void update(Change change) {
        auto next = std::make_unique<Value>(*current_.load(std::memory_order_relaxed));
        change(*next);
        replace(std::move(next));
    }

    bool collect() { return retired_.collect(); }  // true if no earlier value is left

    // What was replaced and readers may still use, for whoever waits for them without the owner's lock.
    RetireList take_retired() { return std::exchange(retired_, {}); }

    // In a forked child there is nobody to wait for.
    void reset_in_child() {
        delete current_.exchange(new Value(), std::memory_order_relaxed);
        retired_ = {};
    }

private:
    std::atomic<const Value*> current_;
    RetireList retired_;
};

namespace detail {

extern std::atomic<std::uint64_t> epoch;
extern constinit thread_local ReaderSlot* slot_of_thread;
ReaderSlot* claim_slot();

}  // namespace detail

inline ReadGuard::ReadGuard() : slot_(detail::slot_of_thread) {
    if (slot_ == nullptr) [[unlikely]]
        slot_ = detail::claim_slot();
    outermost_ = slot_->entered.load(std::memory_order_relaxed) == 0;
    if (outermost_) slot_->entered.store(detail::epoch.load(std::memory_order_acquire), std::memory_order_seq_cst);
}

}  // namespace memfabric::rcu
