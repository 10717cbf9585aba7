// SPDX-License-Identifier: Apache-2.0
//
// What an initiator has to know of memory that somebody serves. The control plane carries it from there to here; the
// bytes are UCX's own and mean something to UCX only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace memfabric::ucx {

// A piece that was registered as one, with the key to it.
struct RemoteRegion {
    std::uint64_t base = 0;  // in the target's process
    std::uint64_t size_bytes = 0;
    std::string key;

    std::uint64_t end() const { return base + size_bytes; }
    bool contains(std::uint64_t address) const { return address >= base && address - base < size_bytes; }
};

// All of it is reached through one worker, and goes with it. It may grow: further regions come behind.
struct RemoteMemory {
    static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

    std::string worker_address;
    std::string version;  // of the target's UCX: not all understand each other
    std::vector<RemoteRegion> regions;

    // Which region an address lies in. Few have more than two.
    std::size_t region_of(std::uint64_t address) const {
        for (std::size_t index = 0; index < regions.size(); ++index) {
            if (regions[index].contains(address)) return index;
        }
        return kNowhere;
    }

    // Also where one region ends and the next begins.
    bool covers(std::uint64_t address, std::uint64_t size_bytes) const {
        while (size_bytes != 0) {
            const std::size_t index = region_of(address);
            if (index == kNowhere) return false;
            const std::uint64_t inside = std::min(size_bytes, regions[index].end() - address);
            address += inside;
            size_bytes -= inside;
        }
        return true;
    }
};

}  // namespace memfabric::ucx
