// SPDX-License-Identifier: Apache-2.0
//
// A peer's look at an engine's registrations: lock-free, O(log n), and good for one generation of the page.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transfer/registration_page.h"

namespace memfabric {

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
