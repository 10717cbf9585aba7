// SPDX-License-Identifier: Apache-2.0
//
// Addresses as engines take them: numbers.
#pragma once

#include <cstdint>

namespace memfabric::tests {

inline std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace memfabric::tests
