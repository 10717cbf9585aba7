// SPDX-License-Identifier: Apache-2.0
//
// This rank's own part of an object, as the server of data connections looks at it: while the rank has joined, members
// of other hosts may touch what is allocated.
#pragma once

#include <atomic>
#include <cstdint>

#include "tcp/exposure.h"

namespace memfabric {

class Space;

// Outlives its space: connections that have not ended yet still ask it.
class ExposedSlot final : public tcp::Exposure {
public:
    explicit ExposedSlot(const Space& space) : space_(&space) {}

    // The space is about to go; it waits for a grace period before it does.
    void end() { space_.store(nullptr, std::memory_order_seq_cst); }

    std::uint64_t generation() const noexcept override;
    bool covers(std::uint64_t address, std::uint64_t size_bytes) const noexcept override;

private:
    std::atomic<const Space*> space_;
};

}  // namespace memfabric
