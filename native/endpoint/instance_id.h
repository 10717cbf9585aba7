// SPDX-License-Identifier: Apache-2.0
//
// Which engine: a number that no other one has had or will have. And the random numbers that such things are made of.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace memfabric {

using InstanceId = std::array<std::uint8_t, 16>;  // random: one engine between initialize and destroy

void fill_random(std::span<std::uint8_t> bytes);
std::string hexadecimal(std::span<const std::uint8_t> bytes);

}  // namespace memfabric
