// SPDX-License-Identifier: Apache-2.0
//
// Limits that several rooms keep. Python reads them from the module (python_module/limits_bindings.cpp), so that each
// number is written once.
#pragma once

#include <cstdint>

namespace memfabric {

inline constexpr std::uint32_t kMaxRanks = 1024;             // of a cluster, and of an object
inline constexpr std::uint32_t kMaxGatherBytes = 64 * 1024;  // from each rank, in shared memory and through the store

}  // namespace memfabric
