// SPDX-License-Identifier: Apache-2.0
//
// Sleeping on a word of memory that several processes share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/api.h"

namespace memfabric {

using FutexWord = std::atomic<std::uint32_t>;
static_assert(FutexWord::is_always_lock_free && sizeof(FutexWord) == 4);

// Sleeps while the word is `expected`, for at most `timeout`; also returns for no reason. The caller looks again.
MF_API void futex_wait(const FutexWord& word, std::uint32_t expected, std::chrono::nanoseconds timeout);

MF_API void futex_wake_all(const FutexWord& word);

}  // namespace memfabric
