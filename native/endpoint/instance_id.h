// SPDX-License-Identifier: Apache-2.0
//
// Which engine: a number that no other one has had or will have.
#pragma once

#include <array>
#include <cstdint>

namespace memfabric {

using InstanceId = std::array<std::uint8_t, 16>;  // random: one engine between initialize and destroy

}  // namespace memfabric
