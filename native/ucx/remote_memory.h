// SPDX-License-Identifier: Apache-2.0
//
// What an initiator has to know of memory that somebody serves. The control plane carries it from there to here; the
// bytes are UCX's own and mean something to UCX only.
#pragma once

#include <cstdint>
#include <string>

namespace memfabric::ucx {

struct RemoteMemory {
    std::string worker_address;
    std::string key;
    std::string version;     // of the target's UCX: not all understand each other
    std::uint64_t base = 0;  // in the target's process
    std::uint64_t size_bytes = 0;

    bool covers(std::uint64_t address, std::uint64_t bytes) const {
        return address >= base && address - base <= size_bytes && bytes <= size_bytes - (address - base);
    }
};

}  // namespace memfabric::ucx
