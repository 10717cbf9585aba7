// SPDX-License-Identifier: Apache-2.0
#include "base/cpu.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace memfabric {

bool cpu_has_avx2() noexcept {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") != 0;  // also checks that the kernel saves the wide registers
#else
    return false;
#endif
}

unsigned usable_cores() noexcept {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return std::max(1U, static_cast<unsigned>(CPU_COUNT(&mask)));
    // Only a machine with more cores than a cpu_set_t holds gets here.
    return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace memfabric
