// SPDX-License-Identifier: Apache-2.0
//
// The limits that copies are compared with: bare loops without checks, locks or dispatch. Plain C, so that Python can
// call them through ctypes on the very buffers it gives to the library, in turn with it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MF_LIMIT_MEMCPY = 0,             // one thread, memcpy
    MF_LIMIT_STREAM = 1,             // one thread, non-temporal stores (memcpy where the machine has none)
    MF_LIMIT_MEMCPY_TWO_THREADS = 2  // memcpy, half of the bytes or pieces each; the second thread must be spinning
};

// Copies all pieces once and returns the microseconds it took, or -1 for a kind that cannot run.
double mf_limit(int kind, const uint64_t* targets, const uint64_t* sources, const uint64_t* sizes, uint32_t count);

// Starts and joins the second thread. It burns a core from start to stop: run it only around measurements of its kind.
void mf_limit_start_spinning(void);
void mf_limit_stop_spinning(void);

#ifdef __cplusplus
}
#endif
