// SPDX-License-Identifier: Apache-2.0
//
// The memory that bytes move from, or to: on huge pages where the machine has them for those who ask, as numpy asks for
// the drivers in Python.
#pragma once

#include <sys/mman.h>

#include <cstring>

#include "layouts.h"

namespace mf_bench {

inline char* region(int fill) {
    void* const memory = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("no memory");
    madvise(memory, kRegionBytes, MADV_HUGEPAGE);
    std::memset(memory, fill, kRegionBytes);
    return static_cast<char*>(memory);
}

}  // namespace mf_bench
