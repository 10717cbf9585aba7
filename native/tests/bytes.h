// SPDX-License-Identifier: Apache-2.0
//
// Megabytes of test data, by calls of the C library: a loop over bytes takes seconds under a sanitizer. Whether they
// are those that were wanted is for `same_bytes` of assertions.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace memfabric::tests {

// Fills memory so that no two places nearby look alike, and differently for every seed.
inline void fill(std::span<std::byte> memory, std::uint64_t seed) {
    constexpr std::size_t kPeriodBytes = 65'521;  // a prime: nobody moves bytes by so many
    std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 1;
    const std::span<std::byte> first = memory.first(std::min(memory.size(), kPeriodBytes));
    for (std::size_t at = 0; at < first.size(); at += sizeof(state)) {
        state = (state ^ state >> 29) * 6364136223846793005U + 1442695040888963407U;
        std::memcpy(first.data() + at, &state, std::min(sizeof(state), first.size() - at));
    }
    for (std::size_t at = kPeriodBytes; at < memory.size(); at += kPeriodBytes) {
        std::memcpy(memory.data() + at, first.data(), std::min(kPeriodBytes, memory.size() - at));
    }
}

inline std::vector<std::byte> pattern(std::size_t size_bytes, std::uint64_t seed) {
    std::vector<std::byte> bytes(size_bytes);
    fill(bytes, seed);
    return bytes;
}

inline bool all_are(std::span<const std::byte> bytes, std::byte value) {
    if (bytes.empty()) return true;
    return bytes.front() == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace memfabric::tests
