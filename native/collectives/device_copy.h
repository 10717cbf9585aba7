// SPDX-License-Identifier: Apache-2.0
//
// What a kernel calls when a side of its copy is memory of another host.
#pragma once

#include <cstdint>

namespace memfabric {

// The bytes are in place when it returns 0. Otherwise a code, and a line in the log: most kernels have nobody to tell.
// Any thread, with or without an interpreter.
std::int32_t copy_for_kernel(void* target, const void* source, std::uint64_t size_bytes);

}  // namespace memfabric
