// SPDX-License-Identifier: Apache-2.0
#include "base/fork_guard.h"

namespace memfabric {

constinit std::atomic<std::uint32_t> ForkGuard::forks_{0};

std::uint32_t ForkGuard::forks() {
    static const int handler = pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(handler);
    return forks_.load(std::memory_order_relaxed);
}

}  // namespace memfabric
