// SPDX-License-Identifier: Apache-2.0
//
// Another process with UCX, for tests: this program once more, with a part to play. It cannot be forked, because UCX
// does not work in forked children.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/owned_fd.h"
#include "ucx/remote_memory.h"

namespace memfabric::tests {

// Memory of its own, which it serves: kOtherBytes of 0x77.
inline constexpr std::size_t kOtherBytes = std::size_t{32} << 20;

inline constexpr int kExitCode = 7;

class OtherProcess {
public:
    // "serve": gives a RemoteMemory. "write": takes one, and writes into all of it again and again once it has told us
    // that the first time is over.
    // "serve_and_fork": as "serve", and has a child that outlives it from its answer to a word of ours on.
    // "serve_and_exit": as "serve", and exits with kExitCode after a word of ours, whatever is under way.
    // Its UCX is `library`, otherwise the same as here.
    explicit OtherProcess(const std::string& part, const std::string& library = "");
    ~OtherProcess() { kill(); }
    OtherProcess(const OtherProcess&) = delete;
    OtherProcess& operator=(const OtherProcess&) = delete;

    void send(const ucx::RemoteMemory& memory) const;
    ucx::RemoteMemory receive() const;
    void say_word() const;
    void await_word() const;

    void kill();
    int await_exit();  // the code; negative: the signal that ended it
    pid_t pid() const { return pid_; }

private:
    OwnedFd socket_;
    pid_t pid_ = -1;
};

}  // namespace memfabric::tests
