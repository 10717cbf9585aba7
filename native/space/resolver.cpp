// SPDX-License-Identifier: Apache-2.0
#include "space/resolver.h"

#include <algorithm>
#include <cinttypes>
#include <string>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "space/region_table.h"
#include "space/space.h"

namespace memfabric {

Status Resolver::check_rectangle(const Rectangle& rectangle) const {
    const std::size_t narrower_pitch = std::min(rectangle.source_pitch_bytes, rectangle.target_pitch_bytes);
    const std::size_t wider_pitch = std::max(rectangle.source_pitch_bytes, rectangle.target_pitch_bytes);
    if (rectangle.width_bytes == 0 || rectangle.height == 0 || narrower_pitch < rectangle.width_bytes ||
        wider_pitch > kAddressLimit / rectangle.height) {
        return fail(Status::InvalidParam,
                    "%s: a width of %zu bytes and a height of %zu rows, with spitch %zu and dpitch %zu, make no "
                    "rectangle: both sides must be at least 1, the pitches at least the width, and the whole below "
                    "2^47 bytes",
                    object_name_.c_str(), rectangle.width_bytes, rectangle.height, rectangle.source_pitch_bytes,
                    rectangle.target_pitch_bytes);
    }
    return Status::Ok;
}

Status Resolver::check_call(std::uint32_t type) const {
    if (const Status state = object_state_.check(); state != Status::Ok) [[unlikely]]
        return state;
    if (type >= kCopyTypes.size()) [[unlikely]] {
        return fail(Status::InvalidParam, "%s: copy type %u does not exist, types are 0 (L2G) to %zu (AUTO)",
                    object_name_.c_str(), type, kCopyTypes.size() - 1);
    }
    return Status::Ok;
}

Status Resolver::resolve_sides(Extent source, Extent target, std::uint32_t type, Side& source_side,
                               Side& target_side) const {
    const CopyType& wanted = kCopyTypes[type];
    Status status = resolve_side("source", source, wanted.source, wanted.name, source_side);
    if (status == Status::Ok) [[likely]]
        status = resolve_side("target", target, wanted.target, wanted.name, target_side);
    if (status != Status::Ok) [[unlikely]] {
        // An object that ends takes its ranks away after it says so: then the end is the reason, not what followed.
        PausePoint::reach("space.resolve.refused");
        const Status state = object_state_.check();
        return state == Status::Ok ? status : state;
    }
    if (type == kAutoCopy && !layout_.contains(source.address) && !layout_.contains(target.address)) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: neither the source 0x%" PRIxPTR " nor the target 0x%" PRIxPTR
                    " lies in the object's range 0x%" PRIxPTR "-0x%" PRIxPTR,
                    object_name_.c_str(), source.address, target.address, layout_.base(), layout_.end());
    }
    return Status::Ok;
}

Status Resolver::resolve_side(const char* name, Extent extent, Classes wanted, const char* type_name,
                              Side& side) const {
    if (extent.size_bytes == 0) [[unlikely]] {
        return fail(Status::InvalidParam, "%s: the size of the copy is 0, it must be at least 1 byte",
                    object_name_.c_str());
    }
    if (extent.address < kLowestAddress || extent.address >= kAddressLimit ||
        extent.size_bytes > kAddressLimit - extent.address) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: the %s of %zu bytes at 0x%" PRIxPTR " is no memory: addresses are 0x%" PRIxPTR
                    " to 0x%" PRIxPTR,
                    object_name_.c_str(), name, extent.size_bytes, extent.address, kLowestAddress, kAddressLimit);
    }
    if (layout_.contains(extent.address)) return slots_.resolve(name, extent, wanted, type_name, side);
    return resolve_outside(name, extent, wanted, type_name, side);
}

// Outside this object: plain memory of the caller, or memory of another object of this process, which then vouches
// for it.
Status Resolver::resolve_outside(const char* name, Extent extent, Classes wanted, const char* type_name,
                                 Side& side) const {
    const Region* region = RegionTable::process().first_touched(extent.address, extent.size_bytes);
    if (region != nullptr && region->base > extent.address) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: the %s of %zu bytes at 0x%" PRIxPTR " starts outside %s and reaches into its range 0x%" PRIxPTR
                    "-0x%" PRIxPTR,
                    object_name_.c_str(), name, extent.size_bytes, extent.address, region->space->object_name().c_str(),
                    region->base, region->end);
    }
    if ((wanted & kPlainMemory) == 0) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: the %s of a %s copy must be %s, but 0x%" PRIxPTR " lies outside the object's range 0x%" PRIxPTR
                    "-0x%" PRIxPTR,
                    object_name_.c_str(), name, type_name, describe(wanted), extent.address, layout_.base(),
                    layout_.end());
    }
    if (region == nullptr) [[likely]]
        return Status::Ok;
    return region->space->slots().resolve(name, extent, kAnyMemory, type_name, side);
}

Status Resolver::recheck_all(const std::vector<Piece>& pieces, const Resolution& found) const {
    Status first = Status::Ok;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        Status status = recheck_all(pieces[i], found);
        if (status == Status::Ok) continue;
        status = about_piece(status, i, pieces.size(), pieces[i]);
        if (status == Status::PartialFailed) return status;  // the more important news
        if (first == Status::Ok) first = status;
    }
    return first;
}

Status Resolver::recheck_sides(Extent source, Extent target, const Resolution& found) const {
    if (const Status status = object_state_.recheck(found.since); status != Status::Ok) return status;
    // What was written to a rank that is gone, nobody has. Whoever has a target must know that it is undefined.
    if (const Status status = recheck_side(target, found); status != Status::Ok) return status;
    const Status status = recheck_side(source, found);
    if (status != Status::NotConnected) return status;
    const std::string reason = take_last_error();
    return fail(Status::PartialFailed,
                "%s; the target of %zu bytes at 0x%" PRIxPTR " may have been overwritten in part: it is undefined",
                reason.c_str(), target.size_bytes, target.address);
}

Status Resolver::recheck_side(Extent extent, const Resolution& found) const {
    if (layout_.contains(extent.address)) return slots_.recheck(extent, found.since);
    if (!found.touches_other_object) return Status::Ok;
    const Region* region = RegionTable::process().first_touched(extent.address, extent.size_bytes);
    return region == nullptr ? Status::Ok : region->space->slots().recheck(extent, found.since);
}

}  // namespace memfabric
