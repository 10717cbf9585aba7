// SPDX-License-Identifier: Apache-2.0
//
// Which memory this process can read (or read and write): asked before memory is registered, so that garbage is refused
// at the call, and when a transfer has failed, to tell on which side.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace memfabric {

// One look at the process's mappings, taken when the first question needs it; touches none of the memory.
class ReadableMemory {
public:
    enum class Access : std::uint8_t { Read, ReadAndWrite };

    explicit ReadableMemory(Access access = Access::Read) : access_(access) {}

    // Every byte; the size is not 0 and the end no overflow. NoResources, with a sentence, if nobody can tell.
    Status covers(std::uint64_t start, std::uint64_t size_bytes, bool& answer);

private:
    struct Range {
        std::uint64_t start;
        std::uint64_t end;
    };

    Status look();

    Access access_;
    bool looked_ = false;
    std::vector<Range> ranges_;  // sorted; adjacent ones are one
};

}  // namespace memfabric
