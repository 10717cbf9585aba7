// SPDX-License-Identifier: Apache-2.0
//
// May this copy run? Both sides must be memory that this process can touch, that the copy type allows, and whose owner
// is there; afterwards, the owner must have been there all the time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "copy/request.h"
#include "copy/type.h"
#include "memory/layout.h"
#include "memory/slot.h"
#include "memory/slot_table.h"
#include "space/object_state.h"

namespace memfabric {

class Space;

struct Admission {
    std::uint64_t since = RevocationClock::now();
    bool touches_other_object = false;  // a side lies in another object's range
};

using Owners = std::vector<std::shared_ptr<Space>>;

// Thread contract: any thread that holds an rcu::ReadGuard. What `admit` accepted stays mapped until the guard is left
// or renewed, and after a renewal if `recheck` accepts it.
class CopyCheck {
public:
    CopyCheck(const Layout& layout, const SlotTable& slots, const ObjectState& object_state,
              const std::string& object_name)
        : layout_(layout), slots_(slots), object_state_(object_state), object_name_(object_name) {}

    Status admit(const Piece& piece, std::uint32_t type, Admission& admission) const;
    Status admit(const std::vector<Piece>& pieces, std::uint32_t type, Admission& admission) const;
    Status admit(const Rectangle& rectangle, std::uint32_t type, Admission& admission) const;

    // The other objects in whose ranges sides lie. Under the guard of the admission.
    Owners other_owners(const Piece& piece) const;
    Owners other_owners(const std::vector<Piece>& pieces) const;
    Owners other_owners(const Rectangle& rectangle) const;

    // `others` are needed once the guard was renewed: by then their ranges may belong to newer objects.
    template <typename Request>
    Status recheck(const Request& request, const Admission& admission, const Owners& others) const {
        if (RevocationClock::now() == admission.since) [[likely]]
            return Status::Ok;
        return recheck_all(request, admission, others);
    }

private:
    Status admit(Extent source, Extent target, std::uint32_t type, Admission& admission) const;
    Status check_side(const char* side, Extent extent, Classes wanted, const char* type_name,
                      Admission& admission) const;
    Status check_outside(const char* side, Extent extent, Classes wanted, const char* type_name,
                         Admission& admission) const;
    template <typename Request>  // Piece or Rectangle
    Status recheck_all(const Request& request, const Admission& admission, const Owners& others) const {
        return recheck(source_of(request), target_of(request), admission, others);
    }
    Status recheck_all(const std::vector<Piece>& pieces, const Admission& admission, const Owners& others) const;
    Status recheck(Extent source, Extent target, const Admission& admission, const Owners& others) const;
    Status recheck_side(Extent extent, const Admission& admission, const Owners& others) const;
    void add_owner(Extent extent, Owners& others) const;

    const Layout& layout_;
    const SlotTable& slots_;
    const ObjectState& object_state_;
    const std::string& object_name_;
};

}  // namespace memfabric
