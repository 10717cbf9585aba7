// SPDX-License-Identifier: Apache-2.0
//
// A word that a thread holds as a robust futex: however its process ends (exec included), the kernel marks the word as
// its owner's death and wakes one who waits on it, before the process's number can be given away.
#pragma once

#include <linux/futex.h>

#include "sync/futex.h"

namespace memfabric {

// Thread contract: made and destroyed anywhere; `hold` and `let_go` by the holding thread, which must not own robust
// mutexes: this replaces the C library's list of them. Must live until `let_go`, or the end of the thread.
class RobustFutex {
public:
    explicit RobustFutex(FutexWord& word) : word_(word) {}
    RobustFutex(const RobustFutex&) = delete;
    RobustFutex& operator=(const RobustFutex&) = delete;

    // The word has the thread's number from now on. False where there are no robust futexes (emulators): then nobody
    // marks it.
    bool hold();
    void let_go();  // the word stays as it is, also when the thread ends

private:
    FutexWord& word_;
    robust_list entry_{};  // the only one of the thread; the kernel finds the word at a distance from it
    robust_list_head head_{};
};

}  // namespace memfabric
