// SPDX-License-Identifier: Apache-2.0
#include "core/process_mark.h"

#include <pthread.h>

namespace memfabric {

std::uint32_t ProcessMark::forks() {
    static const int handler = pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(handler);
    return forks_.load(std::memory_order_relaxed);
}

}  // namespace memfabric
