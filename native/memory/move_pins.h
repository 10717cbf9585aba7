// SPDX-License-Identifier: Apache-2.0
//
// The slots that a long move works in. While it lives, none of them is unmapped or becomes somebody else's, and no
// object of theirs ends; a death, a `create` or another object is not held up by it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "memory/slot_table.h"

namespace memfabric {

// Thread contract: one thread.
class MovePins {
public:
    MovePins() = default;
    ~MovePins() {
        for (const Pin& pin : pins_) pin.slots->end_move(pin.rank);
    }
    MovePins(const MovePins&) = delete;
    MovePins& operator=(const MovePins&) = delete;

    // Inside the guard in which the side was resolved.
    void add(const Side& side) {
        const Pin pin{side.slots, side.rank};
        if (side.slots == nullptr || (!pins_.empty() && pins_.back() == pin)) return;
        if (std::ranges::find(pins_, pin) != pins_.end()) return;
        pins_.push_back(pin);
        side.slots->begin_move(side.rank);
    }

    // Whether none of the ranks was revoked since that time of the revocation clock.
    Status recheck(std::uint64_t since) const {
        for (const Pin& pin : pins_) {
            if (const Status status = pin.slots->recheck(pin.rank, since); status != Status::Ok) return status;
        }
        return Status::Ok;
    }

private:
    struct Pin {
        const SlotTable* slots;
        std::uint32_t rank;
        bool operator==(const Pin&) const = default;
    };
    std::vector<Pin> pins_;
};

}  // namespace memfabric
