// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/sysinfo.h>

#include <cstdint>
#include <string>

namespace memfabric {

inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

// Memory and swap of this machine: more than this nobody can fill.
inline std::uint64_t machine_bytes() {
    struct sysinfo info{};
    sysinfo(&info);
    return (std::uint64_t{info.totalram} + info.totalswap) * info.mem_unit;
}

// What this process may ever have, where that is less: its control groups say so, which Python reads.
struct MemoryLimit {
    std::uint64_t most_bytes = machine_bytes();
    std::string holder = "this machine";  // who says so
};

}  // namespace memfabric
