// SPDX-License-Identifier: Apache-2.0
//
// What an engine shows to its peers: which of its memory may be touched, and whether it is alive. One memory file that
// the engine alone can write; peers map it read-only and look at it before every transfer, so that registrations and
// removals count at once, with the engine's process doing nothing.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/instance_id.h"
#include "memory/memfd.h"

namespace memfabric {

// What initiators of that engine call it.
inline std::uint64_t target_id(const InstanceId& instance) {
    std::uint64_t id = 0;
    std::memcpy(&id, instance.data(), sizeof id);
    return id;
}

inline constexpr std::uint32_t kPrivateMemory = 0;  // in no segment: reached through the kernel

// Registered addresses [start, end).
struct Interval {
    std::uint64_t start;
    std::uint64_t end;
    std::uint32_t segment;  // which peers can map: the id of its ExportedRange; or kPrivateMemory
};

// The words of the page. Intervals stand in two buffers; the low bit of `generation` says which one counts.
struct RegistrationWords {
    struct Entry {
        std::atomic<std::uint64_t> start;
        std::atomic<std::uint64_t> end;
        std::atomic<std::uint32_t> segment;
        std::uint32_t unused;
    };

    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t capacity;  // entries of one buffer
    InstanceId instance;
    std::atomic<std::uint32_t> life;  // see PeerProcess
    std::uint32_t unused;
    std::atomic<std::uint64_t> generation;
    std::array<std::atomic<std::uint64_t>, 2> counts;

    const Entry* buffer(std::uint64_t of_generation) const {
        const auto* first = reinterpret_cast<const Entry*>(reinterpret_cast<const std::byte*>(this) + kHeaderBytes);
        return first + (of_generation & 1) * kCapacity;
    }
    Entry* buffer(std::uint64_t of_generation) {
        return const_cast<Entry*>(static_cast<const RegistrationWords*>(this)->buffer(of_generation));
    }

    static constexpr std::uint64_t kMagic = 0x5346'4d5f'5245'4749;
    static constexpr std::uint32_t kVersion = 1;
    static constexpr std::uint32_t kCapacity = 1U << 20;
    static constexpr std::size_t kHeaderBytes = 4096;
    static constexpr std::uint64_t kPageBytes = kHeaderBytes + 2 * std::uint64_t{kCapacity} * sizeof(Entry);
};
static_assert(sizeof(RegistrationWords::Entry) == 24 && std::atomic<std::uint64_t>::is_always_lock_free);

// The engine's side. Thread contract: `publish` by one thread at a time; the rest from any.
class RegistrationPage {
public:
    static Status make(const InstanceId& instance, std::shared_ptr<RegistrationPage>& made);

    // Intervals are sorted and disjoint, at most kCapacity. Counts for every peer when this returns.
    void publish(std::span<const Interval> intervals);

    int shown_fd() const { return shown_.get(); }
    std::atomic<std::uint32_t>& life() { return words().life; }
    RegistrationWords& words() { return *reinterpret_cast<RegistrationWords*>(mapping_.address()); }

private:
    SharedMapping mapping_;
    OwnedFd shown_;
};

// A peer's look at an engine's registrations: lock-free, O(log n), and good for one generation of the page.

// Usage: look everything up, then ask `current()`; if it says no, the answers may be torn: scan again.
class RegistrationScan {
public:
    explicit RegistrationScan(const RegistrationWords& words)
        : words_(words),
          generation_(words.generation.load(std::memory_order_seq_cst)),
          entries_(words.buffer(generation_)),
          count_(std::min<std::uint64_t>(words.counts[generation_ & 1].load(std::memory_order_acquire),
                                         RegistrationWords::kCapacity)) {}

    // Whether all of [address, address + size_bytes) is registered; `segment` is where, kPrivateMemory also where two
    // meet.
    bool covers(std::uint64_t address, std::uint64_t size_bytes, std::uint32_t& segment) {
        const std::uint64_t end = address + size_bytes;
        if (size_bytes == 0 || end < address) return false;
        if (address < cached_.start || address >= cached_.end) {
            if (!find(address)) return false;
        }
        segment = cached_.segment;
        while (end > cached_.end) [[unlikely]] {
            if (index_ + 1 >= count_ || start_of(index_ + 1) != cached_.end) return false;
            take(index_ + 1);
            segment = kPrivateMemory;
        }
        return true;
    }

    bool current() const { return words_.generation.load(std::memory_order_relaxed) == generation_; }

private:
    std::uint64_t start_of(std::uint64_t index) const { return entries_[index].start.load(std::memory_order_acquire); }

    // The last interval that starts at or before the address, if it contains it.
    bool find(std::uint64_t address) {
        std::uint64_t low = 0;
        std::uint64_t high = count_;
        while (low < high) {
            const std::uint64_t middle = low + (high - low) / 2;
            start_of(middle) <= address ? low = middle + 1 : high = middle;
        }
        if (low == 0) return false;
        take(low - 1);
        return address < cached_.end;
    }

    void take(std::uint64_t index) {
        const RegistrationWords::Entry& entry = entries_[index];
        index_ = index;
        cached_ = {entry.start.load(std::memory_order_acquire), entry.end.load(std::memory_order_acquire),
                   entry.segment.load(std::memory_order_acquire)};
    }

    const RegistrationWords& words_;
    const std::uint64_t generation_;
    const RegistrationWords::Entry* const entries_;
    const std::uint64_t count_;
    std::uint64_t index_ = 0;
    Interval cached_{0, 0, kPrivateMemory};
};

}  // namespace memfabric
