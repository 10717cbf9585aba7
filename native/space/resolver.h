// SPDX-License-Identifier: Apache-2.0
//
// What do the addresses of a copy mean, and may it run? Both sides must be memory that this process can reach, that the
// copy type allows, and whose owner is there; afterwards, the owner must have been there all the time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "copy/piece_failure.h"
#include "copy/request.h"
#include "copy/type.h"
#include "memory/layout.h"
#include "memory/slot.h"
#include "memory/slot_table.h"
#include "space/object_state.h"

namespace memfabric {

// What was found out about a request as a whole.
struct Resolution {
    std::uint64_t since = RevocationClock::now();
    std::size_t total_bytes = 0;
    bool touches_other_object = false;  // a side lies in another object's range
    bool is_remote = false;             // a side is not mapped here
};

// Thread contract: any thread that holds an rcu::ReadGuard. What `resolve` accepted stays mapped until the guard is
// left, and longer if its sides are pinned.
class Resolver {
public:
    Resolver(const Layout& layout, const SlotTable& slots, const ObjectState& object_state,
             const std::string& object_name)
        : layout_(layout), slots_(slots), object_state_(object_state), object_name_(object_name) {}

    // `visit(what, source, target)` is called for the piece, every piece, or the rectangle, with both sides.
    template <typename Request, typename Visit>
    Status resolve(const Request& request, std::uint32_t type, Visit visit) const;
    template <typename Request>
    Status resolve(const Request& request, std::uint32_t type, Resolution& found) const;

    // Inside the guard of `resolve`, or while its sides are pinned, after the bytes have moved: nobody was revoked
    // meanwhile. PartialFailed: a source was, and its target is there.
    template <typename Request>
    Status recheck(const Request& request, const Resolution& found) const {
        if (RevocationClock::now() == found.since) [[likely]]
            return Status::Ok;
        return recheck_all(request, found);
    }

private:
    Status check_call(std::uint32_t type) const;  // what concerns all pieces
    Status check_rectangle(const Rectangle& rectangle) const;
    template <typename Request, typename Visit>
    Status resolve_one(const Request& request, std::uint32_t type, Visit& visit) const;
    Status resolve_sides(Extent source, Extent target, std::uint32_t type, Side& source_side, Side& target_side) const;
    Status resolve_side(const char* name, Extent extent, Classes wanted, const char* type_name, Side& side) const;
    Status resolve_outside(const char* name, Extent extent, Classes wanted, const char* type_name, Side& side) const;

    template <typename Request>  // Piece or Rectangle
    Status recheck_all(const Request& request, const Resolution& found) const {
        return recheck_sides(source_of(request), target_of(request), found);
    }
    Status recheck_all(const std::vector<Piece>& pieces, const Resolution& found) const;
    Status recheck_sides(Extent source, Extent target, const Resolution& found) const;
    Status recheck_side(Extent extent, const Resolution& found) const;

    const Layout& layout_;
    const SlotTable& slots_;
    const ObjectState& object_state_;
    const std::string& object_name_;
};

template <typename Request, typename Visit>
Status Resolver::resolve(const Request& request, std::uint32_t type, Visit visit) const {
    if (const Status status = check_call(type); status != Status::Ok) [[unlikely]]
        return status;
    if constexpr (std::is_same_v<Request, std::vector<Piece>>) {
        for (std::size_t i = 0; i < request.size(); ++i) {
            if (const Status status = resolve_one(request[i], type, visit); status != Status::Ok) [[unlikely]]
                return about_piece(status, i, request.size(), request[i]);
        }
        return Status::Ok;
    } else {
        if constexpr (std::is_same_v<Request, Rectangle>) {
            if (const Status status = check_rectangle(request); status != Status::Ok) return status;
        }
        return resolve_one(request, type, visit);
    }
}

template <typename Request, typename Visit>  // Piece or Rectangle
Status Resolver::resolve_one(const Request& request, std::uint32_t type, Visit& visit) const {
    Side source;
    Side target;
    const Status status = resolve_sides(source_of(request), target_of(request), type, source, target);
    if (status == Status::Ok) [[likely]]
        visit(request, source, target);
    return status;
}

template <typename Request>
Status Resolver::resolve(const Request& request, std::uint32_t type, Resolution& found) const {
    return resolve(request, type, [&](const auto& what, const Side& source, const Side& target) {
        found.total_bytes += bytes_of(what);
        found.is_remote |= source.transport != nullptr || target.transport != nullptr;
        const auto is_others = [&](const Side& side) { return side.slots != nullptr && side.slots != &slots_; };
        found.touches_other_object |= is_others(source) || is_others(target);
    });
}

}  // namespace memfabric
