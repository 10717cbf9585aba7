// SPDX-License-Identifier: Apache-2.0
#include "sync/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace memfabric {

void futex_wait(const FutexWord& word, std::uint32_t expected, std::chrono::nanoseconds timeout) {
    if (timeout.count() <= 0) return;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
    const timespec relative{seconds.count(), (timeout - seconds).count()};
    syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void futex_wake_all(const FutexWord& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace memfabric
