// SPDX-License-Identifier: Apache-2.0
//
// OpenSSL's way to a socket: as its own, but it never waits, raises no SIGPIPE, and sends many records with one system
// call: what is written is kept until somebody sends it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "tls/abi.h"

namespace memfabric::tls {

struct BioSocket {
    int fd = -1;           // the caller's
    std::string unsent;    // what was written ...
    std::size_t sent = 0;  // ... of which so many bytes have been sent
    int error = 0;         // of the last system call that failed for good
    bool ended = false;    // by the other side

    // 1: nothing is unsent any more. As send otherwise: -1 and errno.
    ssize_t flush();
};

abi::BioMethod* new_socket_method(const abi::Functions& calls);  // for the life of the process; nullptr: no memory

// Of the library that was loaded; `socket` outlives it.
abi::Bio* new_socket_bio(BioSocket& socket);

}  // namespace memfabric::tls
