// SPDX-License-Identifier: Apache-2.0
#include "sync/rcu.h"

#include "base/fork_guard.h"
#include "sync/backoff.h"

namespace memfabric::rcu {
namespace {

std::atomic<ReaderSlot*> reader_slots{nullptr};  // a list that only grows

// Gives the slot back when the thread ends. A guard in a still later thread-local destructor takes a new slot, which is
// then kept forever: 64 bytes, and harmless.
struct SlotKeeper {
    ~SlotKeeper() {
        ReaderSlot* slot = detail::slot_of_thread;
        detail::slot_of_thread = nullptr;
        slot->taken.store(false, std::memory_order_release);
    }
};

// In a forked child: they are not there any more, and what the parent moved does not count.
void forget_other_threads() {
    for (ReaderSlot* slot = reader_slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
        slot->traffic.clear();
        if (slot == detail::slot_of_thread) continue;
        slot->entered.store(0, std::memory_order_relaxed);
        slot->taken.store(false, std::memory_order_relaxed);
    }
}

bool is_inside_since_before(const ReaderSlot& slot, std::uint64_t period) {
    const std::uint64_t entered = slot.entered.load(std::memory_order_seq_cst);
    return entered != 0 && entered < period;
}

}  // namespace

constinit std::atomic<std::uint64_t> detail::epoch{1};
constinit thread_local ReaderSlot* detail::slot_of_thread = nullptr;

ReaderSlot* detail::claim_slot() {
    static const ChildHook hook(forget_other_threads);

    ReaderSlot* slot = reader_slots.load(std::memory_order_acquire);
    for (; slot != nullptr; slot = slot->next) {
        bool taken = false;
        if (slot->taken.compare_exchange_strong(taken, true, std::memory_order_acquire)) break;
    }
    if (slot == nullptr) {
        slot = new ReaderSlot;
        slot->next = reader_slots.load(std::memory_order_relaxed);
        while (!reader_slots.compare_exchange_weak(slot->next, slot, std::memory_order_seq_cst)) {
        }
    }
    slot_of_thread = slot;
    thread_local SlotKeeper keeper;
    static_cast<void>(keeper);
    return slot;
}

void synchronize() {
    const std::uint64_t period = begin_grace_period();
    for (ReaderSlot* slot = reader_slots.load(std::memory_order_seq_cst); slot != nullptr; slot = slot->next) {
        Backoff backoff;
        while (is_inside_since_before(*slot, period)) backoff.wait();
    }
}

std::uint64_t begin_grace_period() { return detail::epoch.fetch_add(1, std::memory_order_seq_cst) + 1; }

bool grace_period_ended(std::uint64_t period) {
    for (ReaderSlot* slot = reader_slots.load(std::memory_order_seq_cst); slot != nullptr; slot = slot->next) {
        if (is_inside_since_before(*slot, period)) return false;
    }
    return true;
}

TrafficCounters::Amount traffic(Route route, Operation operation, std::size_t size_class) {
    TrafficCounters::Amount sum;
    for (const ReaderSlot* slot = reader_slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
        const TrafficCounters::Amount amount = slot->traffic.read(route, operation, size_class);
        sum.calls += amount.calls;
        sum.bytes += amount.bytes;
    }
    return sum;
}

}  // namespace memfabric::rcu
