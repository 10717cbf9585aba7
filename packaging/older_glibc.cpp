// SPDX-License-Identifier: Apache-2.0
//
// What this machine's C++ library expects of glibc and the glibc of wheels does not have yet. Linked into the shared
// libraries of wheels only (packaging/toolchain.cmake), and seen by nobody else.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" {

// glibc 2.32: whether atomic operations may be left out. They may not.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// glibc 2.36, for std::random_device.
__attribute__((visibility("hidden"))) std::uint32_t arc4random() {
    std::uint32_t number = 0;
    if (getentropy(&number, sizeof number) != 0) std::abort();
    return number;
}
}
