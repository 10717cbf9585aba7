// SPDX-License-Identifier: Apache-2.0
//
// The limits of moving bytes into another process: process_vm_writev without checks, locks or sessions. Plain C, so
// that Python can call it through ctypes on the very buffers it gives to the library, in turn with it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Writes all pieces into the process once, IOV_MAX per system call, on one thread; returns the microseconds it took, or
// -1 when the kernel refused.
double mf_process_limit(int pid, const uint64_t* targets, const uint64_t* sources, const uint64_t* sizes,
                        uint32_t count);

#ifdef __cplusplus
}
#endif
