// SPDX-License-Identifier: Apache-2.0
//
// The caller's own side of a transfer: plain memory, or memory of an object of this process, which then vouches for it
// as it does for its copies. An object's range has addresses without memory: of ranks that never came or are gone.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "copy/request.h"
#include "memory/move_pins.h"
#include "memory/slot.h"
#include "space/region_table.h"

namespace memfabric {

// Thread contract: one thread, inside one rcu::ReadGuard from the first `admit` to the last `recheck`: what was
// admitted stays mapped until then. With `pins` the guard may be left after the last `admit`. Cost for plain memory:
// one binary search to admit the first, few comparisons for further ones between the same objects, one comparison to
// recheck.
class LocalBuffers {
public:
    explicit LocalBuffers(MovePins* pins = nullptr) : pins_(pins) {}

    Status admit(Extent buffer) {
        if (gap_.contains(buffer.address, buffer.size_bytes)) return Status::Ok;
        const Region* region = RegionTable::process().first_touched(buffer.address, buffer.size_bytes, gap_);
        if (region == nullptr) [[likely]]
            return Status::Ok;
        return ask_owner(*region, buffer);
    }

    // After the bytes have moved: nothing that owns a buffer can have changed meanwhile.
    bool untouched() const { return !belongs_to_object_ || RevocationClock::now() == since_; }

    // After the bytes have moved: whoever owns the buffer was there all the time.
    Status recheck(Extent buffer) const { return untouched() ? Status::Ok : ask_owner_again(buffer); }
    // The same for all that was admitted, with `pins`, inside a guard or not.
    Status recheck_pinned() const { return untouched() ? Status::Ok : pins_->recheck(since_); }

private:
    Status ask_owner(const Region& region, Extent buffer);
    Status ask_owner_again(Extent buffer) const;

    MovePins* const pins_;
    const std::uint64_t since_ = RevocationClock::now();
    Gap gap_;                         // that the last plain buffer lies in
    bool belongs_to_object_ = false;  // one of the buffers does
};

}  // namespace memfabric
