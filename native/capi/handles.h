// SPDX-License-Identifier: Apache-2.0
//
// The handles that C programs hold: numbers that were never given before, not addresses. A handle that was destroyed,
// or that somebody made up, is found out by one comparison.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_guard.h"
#include "base/per_thread.h"

namespace memfabric::capi {

// The handles of one kind of object, told apart from those of others by `kTag`. Thread contract: any thread. Looking
// one up takes no lock unless this thread used another one before.
template <typename Object, std::uint64_t kTag>
class Handles {
public:
    static constexpr std::size_t kMost = 4096;  // at a time

    static Handles& process() {
        static Handles& handles = *new Handles;
        return handles;
    }

    // A number for an object that is about to be made; 0: there are too many. It is not valid before `publish`.
    std::uint64_t reserve() {
        const std::lock_guard lock(mutex_);
        for (std::size_t index = 0; index < kMost; ++index) {
            if (slots_[index].reserved != 0) continue;
            slots_[index].reserved = ++last_number_ << kNumberShift | index << kIndexShift | kTag;
            return slots_[index].reserved;
        }
        return 0;
    }

    void publish(std::uint64_t handle, std::shared_ptr<Object> object) {
        const std::lock_guard lock(mutex_);
        Slot& slot = slot_of(handle);
        slot.object = std::move(object);
        slot.handle.store(handle, std::memory_order_release);
    }

    // From now on it is invalid; the object lives on while calls use it. Nothing happens if it is invalid already.
    void remove(std::uint64_t handle) {
        std::shared_ptr<Object> removed;
        const std::lock_guard lock(mutex_);
        Slot& slot = slot_of(handle);
        if (slot.reserved != handle) return;
        slot.handle.store(0, std::memory_order_release);
        removed = std::move(slot.object);
        slot.reserved = 0;
    }

    void remove_all() {
        for (Slot& slot : slots_) {
            if (const std::uint64_t handle = slot.handle.load(std::memory_order_acquire); handle != 0) remove(handle);
        }
    }

    // The object, for as long as this thread asks for no other; nullptr if the handle is invalid.
    Object* find(const void* given) {
        const auto handle = reinterpret_cast<std::uint64_t>(given);
        const Used* const used = PerThread<Used>::find();
        if (used != nullptr && used->handle == handle &&
            slot_of(handle).handle.load(std::memory_order_acquire) == handle) [[likely]]
            return used->object.get();
        return find_other(handle);
    }

private:
    static constexpr unsigned kIndexShift = 4;
    static constexpr unsigned kNumberShift = 16;

    struct Slot {
        std::atomic<std::uint64_t> handle{0};  // 0: invalid
        std::uint64_t reserved = 0;            // the same, from `reserve` on
        std::shared_ptr<Object> object;
    };
    struct Used {
        std::uint64_t handle = 0;
        std::shared_ptr<Object> object;
    };

    friend void hold_across_forks<Handles>();
    Handles() { hold_across_forks<Handles>(); }
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }
    void begin_in_child() { mutex_.unlock(); }  // each object knows itself whose it is

    Slot& slot_of(std::uint64_t handle) { return slots_[handle >> kIndexShift & (kMost - 1)]; }

    [[gnu::noinline]] Object* find_other(std::uint64_t handle) {
        Used found;
        {
            const std::lock_guard lock(mutex_);
            const Slot& slot = slot_of(handle);
            if (handle != 0 && slot.handle.load(std::memory_order_relaxed) == handle) found = {handle, slot.object};
        }
        Used& used = PerThread<Used>::get();
        std::swap(used, found);  // what was used before goes without the lock: it may be the last one who has it
        return used.object.get();
    }

    std::mutex mutex_;  // for everything but the numbers in the slots
    std::uint64_t last_number_ = 0;
    std::array<Slot, kMost> slots_;
};

}  // namespace memfabric::capi
