// SPDX-License-Identifier: Apache-2.0
#include "space/exposed_slot.h"

#include "memory/slot.h"
#include "space/space.h"

namespace memfabric {

// Leaving, closing and detaching tick; memory that is added takes nothing away.
std::uint64_t ExposedSlot::generation() const noexcept { return RevocationClock::now(); }

bool ExposedSlot::covers(std::uint64_t address, std::uint64_t size_bytes) const noexcept {
    const Space* space = space_.load(std::memory_order_seq_cst);
    if (space == nullptr || !space->is_exposed() || !space->layout().contains(address)) return false;
    const SlotPlace place = space->layout().locate(address);
    if (place.rank != space->local_rank()) return false;
    const std::uint64_t allocated_bytes = space->slots().allocated_bytes(place.rank, place.tier);
    const std::uint64_t offset = address - place.start;
    return offset < allocated_bytes && size_bytes <= allocated_bytes - offset;
}

}  // namespace memfabric
