// SPDX-License-Identifier: Apache-2.0
//
// What the machine under this process can do; asked at run time, so one build fits every machine of an architecture.
#pragma once

namespace memfabric {

bool cpu_has_avx2() noexcept;

// Cores this process may run on (its affinity mask), at least 1.
unsigned usable_cores() noexcept;

// Tells the core that the caller is spinning on a word another core will write.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    // "isb" waits longer than "yield", which is a no-op on most server cores.
    asm volatile("isb" ::: "memory");
#endif
}

}  // namespace memfabric
