// SPDX-License-Identifier: Apache-2.0
//
// Sleeping in shared memory until something has changed, whatever it is, without ever missing the change.
//
//     sleeper                                        waker, of any process
//     1  waiters += 1                                5  changes what the sleeper looks at
//     2  seen = epoch                                6  waiters == 0: nothing to do
//     3  looks: has it changed? then it stays awake  7  epoch += 1
//     4  sleeps in the kernel if epoch == seen       8  wakes all who sleep on epoch
//
// Every access of 1, 2, 3, 5, 6 and 7 is sequentially consistent, so all of them happen in one order that everybody
// agrees on. If 6 sees nobody, it comes before 1; then 5 comes before 3, and the sleeper sees the change. If 6 sees the
// sleeper, 7 follows: before 2, then 5 comes before 3 again; after 2, then the kernel, which compares in 4 under the
// lock that 8 takes, either refuses to let it sleep or has it in the queue that 8 empties. No case is left in which it
// sleeps through the change; so nothing needs to wake up now and then to look whether it did.
//
// The word that the kernel compares is `epoch` and nothing else: a change of another word (of a count of departures,
// say) can come between 3 and 4 and would be slept through.
//
// Whoever dies between 5 and 8 leaves sleepers behind: its death is a change of its own, and notifies. Whoever dies
// between 1 and the end of its sleep leaves `waiters` too high: that costs wakers a system call, nothing else.
#pragma once

#include <chrono>

#include "sync/futex.h"

namespace memfabric {

struct EventCount {
    FutexWord waiters;
    FutexWord epoch;

    // After the change.
    void notify_all() {
        if (waiters_now() == 0) return;
        epoch.fetch_add(1);
        futex_wake_all(epoch);
    }

    // Returns after a notification, at once if `changed()`, or after `longest`; also for no reason. `changed` reads
    // with sequential consistency what wakers change before they notify.
    template <typename Changed>
    void wait_unless(Changed changed, std::chrono::nanoseconds longest) {
        waiters.fetch_add(1);
        const std::uint32_t seen = epoch.load();
        if (!changed()) futex_wait(epoch, seen, longest);
        waiters.fetch_sub(1);
    }

private:
    // Emulators of aarch64 on x86 let a load pass the store before it, which the processor itself does not do with
    // sequentially consistent ones; a read-modify-write is a barrier for both.
    std::uint32_t waiters_now() {
#if defined(__aarch64__)
        return waiters.fetch_add(0);
#else
        return waiters.load();
#endif
    }
};

}  // namespace memfabric
