// SPDX-License-Identifier: Apache-2.0
//
// Memory through which encrypted bytes pass on their way between TLS and the memory of the program. The kernel copies
// in and out: memory that is registered and not mapped any more is an error (EFAULT), as with plain sockets, and not
// the end of the process.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

#include "base/owned_fd.h"
#include "memory/memfd.h"

namespace memfabric::tcp {

// Thread contract: one thread at a time.
class Staging {
public:
    static constexpr std::size_t kBytes = std::size_t{64} << 10;

    bool make();  // false: errno; again: nothing
    std::byte* bytes() const { return mapping_.address(); }

    // As much as fits of what `message` names, copied to the beginning; -1: errno.
    ssize_t take(const msghdr& message);
    // What lies between the two, as much as `message` has room for, copied there; -1: errno.
    ssize_t give(std::size_t begin, std::size_t end, const msghdr& message);

private:
    OwnedFd file_;
    SharedMapping mapping_;
};

}  // namespace memfabric::tcp
