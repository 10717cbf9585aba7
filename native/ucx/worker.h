// SPDX-License-Identifier: Apache-2.0
//
// One of UCX's workers: a set of connections, which make progress only while somebody calls. There are two kinds: the
// one that begins all moves of this process, driven by whoever waits for one (`initiator`), and one for each memory
// that is served, driven by a thread of ours (`progress_thread`).
#pragma once

#include <string>

#include "base/status.h"
#include "ucx/abi.h"
#include "ucx/inherited_sockets.h"
#include "ucx/library.h"

namespace memfabric::ucx {

// Thread contract: one thread at a time.
class Worker {
public:
    explicit Worker(const Library& library) : library_(library) {}
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    Status open(abi::Context context);

    bool progress() { return library_.calls().worker_progress(handle_) != 0; }
    bool arm();                     // `fd` tells of what comes from now on; false: there is something to do already
    int fd() const { return fd_; }  // UCX's; for poll and epoll
    Status address(std::string& bytes);
    void abandon() { handle_ = nullptr; }  // in a forked child: it is the parent's

    const Library& library() const { return library_; }
    abi::Worker handle() const { return handle_; }

private:
    const Library& library_;
    abi::Worker handle_ = nullptr;
    int fd_ = -1;
    InheritedSockets inherited_sockets_;
};

}  // namespace memfabric::ucx
