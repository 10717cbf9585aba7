// SPDX-License-Identifier: Apache-2.0
//
// Which memory this process can read: asked before memory is registered, so that garbage is refused at the call.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace memfabric {

// One look at the process's mappings, taken when the first question needs it; touches none of the memory.
class ReadableMemory {
public:
    // Every byte; the size is not 0 and the end no overflow. NoResources, with a sentence, if nobody can tell.
    Status covers(std::uint64_t start, std::uint64_t size_bytes, bool& answer);

private:
    struct Range {
        std::uint64_t start;
        std::uint64_t end;
    };

    Status look();

    bool looked_ = false;
    std::vector<Range> ranges_;  // sorted; adjacent ones are one
};

}  // namespace memfabric
