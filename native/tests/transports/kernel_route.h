// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>
#include <unistd.h>

namespace memfabric::tests {

inline constexpr char kNoKernelRoute[] = "the kernel, or its emulator, moves no memory between processes";

// Emulators of one process lack these calls; memory that peers can map needs none.
inline bool kernel_moves_memory() {
    char from = 1;
    char to = 0;
    const iovec local{&to, 1};
    const iovec remote{&from, 1};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

}  // namespace memfabric::tests
