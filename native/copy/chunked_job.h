// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace memfabric {

// Work cut into chunks 0 ... chunk_count() - 1, each to be run once, in any order, on any thread, several at a time.
// What a chunk stored is visible to whoever acquires a flag that the running thread releases afterwards.
class ChunkedJob {
public:
    virtual std::uint32_t chunk_count() const noexcept = 0;
    virtual void run_chunk(std::uint32_t chunk) const noexcept = 0;

protected:
    ~ChunkedJob() = default;
};

}  // namespace memfabric
