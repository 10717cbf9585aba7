// SPDX-License-Identifier: Apache-2.0
//
// Which address belongs to whom: pure arithmetic over an object's range. First every rank's DRAM slot, then every
// rank's HBM slot; ranks in order, slots of one tier equally large, no gaps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"

namespace memfabric {

enum class Tier : std::uint8_t { Dram = 0, Hbm = 1 };
inline constexpr std::size_t kTiers = 2;
inline constexpr const char* name_of(Tier tier) { return tier == Tier::Dram ? "DRAM" : "HBM"; }
inline constexpr std::size_t index_of(Tier tier) { return static_cast<std::size_t>(tier); }

inline constexpr std::uint32_t kNoRank = UINT32_MAX;
inline constexpr std::uintptr_t kLowestAddress = 65536;  // below: NULL, and NULL with a field offset
inline constexpr std::uintptr_t kAddressLimit = std::uintptr_t{1} << 47;
// The ranges of all objects lie between these; programs place nothing there by themselves. Below is the shadow memory
// of AddressSanitizer, up to 0x1000'7fff'8000, and the table for kernels (collectives/device_table.h).
inline constexpr std::uintptr_t kRegionStart = 0x1001'0000'0000;
inline constexpr std::uintptr_t kRegionEnd = 0x5001'0000'0000;

struct SlotPlace {
    std::uint32_t rank;
    Tier tier;
    std::uintptr_t start;
    std::uintptr_t end;
};

class Layout {
public:
    Layout(std::uintptr_t base, std::uint32_t capacity, std::uint64_t max_dram_bytes, std::uint64_t max_hbm_bytes)
        : base_(base),
          capacity_(capacity),
          max_bytes_{max_dram_bytes, max_hbm_bytes},
          dram_bytes_(capacity * max_dram_bytes),
          size_bytes_(dram_bytes_ + capacity * max_hbm_bytes) {}

    bool operator==(const Layout& other) const = default;

    std::uintptr_t base() const { return base_; }
    std::uintptr_t end() const { return base_ + size_bytes_; }
    std::uint64_t size_bytes() const { return size_bytes_; }
    std::uint32_t capacity() const { return capacity_; }
    std::uint64_t max_bytes(Tier tier) const { return max_bytes_[index_of(tier)]; }

    bool contains(std::uintptr_t address) const { return address - base_ < size_bytes_; }

    // For an address that the range contains. One division.
    SlotPlace locate(std::uintptr_t address) const {
        std::uintptr_t offset = address - base_;
        std::uintptr_t start = base_;
        Tier tier = Tier::Dram;
        if (offset >= dram_bytes_) {
            offset -= dram_bytes_;
            start += dram_bytes_;
            tier = Tier::Hbm;
        }
        const std::uint64_t slot_bytes = max_bytes(tier);
        const auto rank = static_cast<std::uint32_t>(offset / slot_bytes);
        start += rank * slot_bytes;
        return {rank, tier, start, start + slot_bytes};
    }

    std::uintptr_t slot_address(std::uint32_t rank, Tier tier) const {
        return base_ + (tier == Tier::Hbm ? dram_bytes_ : 0) + rank * max_bytes(tier);
    }

private:
    std::uintptr_t base_;
    std::uint32_t capacity_;
    std::uint64_t max_bytes_[kTiers];
    std::uint64_t dram_bytes_;
    std::uint64_t size_bytes_;
};

}  // namespace memfabric
