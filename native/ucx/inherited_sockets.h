// SPDX-License-Identifier: Apache-2.0
//
// A forked child inherits the sockets of UCX's connections. While it has them, peers of its parent do not see that end;
// so it closes them. UCX does not say which they are; the kernel does: those that a worker's descriptor watches.
#pragma once

#include <functional>

namespace memfabric::ucx {

// Calls it with each socket that an epoll descriptor leads to.
void for_each_watched_socket(int epoll, const std::function<void(int fd)>& call);

// While one exists, forked children close all sockets that `watching` (an epoll descriptor) leads to. Thread contract:
// any thread.
class InheritedSockets {
public:
    InheritedSockets() = default;
    ~InheritedSockets() { watch(-1); }
    InheritedSockets(const InheritedSockets&) = delete;
    InheritedSockets& operator=(const InheritedSockets&) = delete;

    void watch(int watching);  // -1: none any more

private:
    int place_ = -1;  // in the table; more workers than it has are not remembered
};

}  // namespace memfabric::ucx
