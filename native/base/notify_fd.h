// SPDX-License-Identifier: Apache-2.0
//
// A descriptor that becomes readable once, for event loops: two of the same eventfd, so that whoever waits may close
// its own at any time.
#pragma once

#include "base/owned_fd.h"
#include "base/status.h"

namespace memfabric {

class NotifyFd {
public:
    // `shown` is the waiting side's to close. NoResources, with a sentence that begins with `who`.
    static Status make(const char* who, NotifyFd& made, int& shown);

    void notify();  // once; gives our side back

private:
    OwnedFd fd_;
};

}  // namespace memfabric
