// SPDX-License-Identifier: Apache-2.0
//
// Streaming copies: loops whose stores go to memory without first reading the target's lines into the caches. They win
// when the target is larger than what the caches would keep, and lose when somebody is about to read it.
#pragma once

#include <cstddef>
#include <span>

namespace memfabric {

inline constexpr std::size_t kLineBytes = 64;  // of the caches; a hint, nothing breaks where they differ

// One loop for one instruction set. `copy` needs no alignment, but the two ranges must not overlap. Its stores may be
// seen late by other cores: whoever announces that the bytes have arrived calls stream_fence() before.
struct StreamKernel {
    const char* name;
    void (*copy)(std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept;
};

// Every kernel that this machine can run, best first; never empty.
std::span<const StreamKernel> stream_kernels() noexcept;

// Orders the calling thread's streaming stores before its next store.
void stream_fence() noexcept;

}  // namespace memfabric
