// SPDX-License-Identifier: Apache-2.0
//
// Remembers which process made an object. A forked child inherits the object's bytes but none of its threads, and
// locks that those threads held stay locked forever: objects with threads ask this before they touch either.
#pragma once

#include <unistd.h>

namespace memfabric {

class ProcessMark {
public:
    bool in_forked_child() const { return getpid() != maker_; }  // a system call: not for the short path

private:
    pid_t maker_ = getpid();
};

}  // namespace memfabric
