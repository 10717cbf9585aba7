// SPDX-License-Identifier: Apache-2.0
#include "space/copy_check.h"

#include <algorithm>
#include <cinttypes>

#include "base/last_error.h"
#include "space/region_table.h"
#include "space/space.h"

namespace memfabric {

Status CopyCheck::admit(const Piece& piece, std::uint32_t type, Admission& admission) const {
    return admit(source_of(piece), target_of(piece), type, admission);
}

Status CopyCheck::admit(const std::vector<Piece>& pieces, std::uint32_t type, Admission& admission) const {
    for (const Piece& piece : pieces) {
        if (const Status status = admit(piece, type, admission); status != Status::Ok) [[unlikely]]
            return status;
    }
    return Status::Ok;
}

Status CopyCheck::admit(const Rectangle& rectangle, std::uint32_t type, Admission& admission) const {
    const std::size_t narrower_pitch = std::min(rectangle.source_pitch_bytes, rectangle.target_pitch_bytes);
    const std::size_t wider_pitch = std::max(rectangle.source_pitch_bytes, rectangle.target_pitch_bytes);
    if (rectangle.width_bytes == 0 || rectangle.height == 0 || narrower_pitch < rectangle.width_bytes ||
        wider_pitch > kAddressLimit / rectangle.height) {
        return fail(Status::InvalidParam,
                    "%s: %zu rows of %zu bytes, %zu bytes apart in the source and %zu in the target, are no rectangle: "
                    "both sides must be at least 1, the pitches at least the width, and the whole below 2^47 bytes",
                    object_name_.c_str(), rectangle.height, rectangle.width_bytes, rectangle.source_pitch_bytes,
                    rectangle.target_pitch_bytes);
    }
    return admit(source_of(rectangle), target_of(rectangle), type, admission);
}

Status CopyCheck::admit(Extent source, Extent target, std::uint32_t type, Admission& admission) const {
    if (const Status status = object_state_.check(); status != Status::Ok) [[unlikely]]
        return status;
    if (type >= kCopyTypes.size()) [[unlikely]] {
        return fail(Status::InvalidParam, "%s: copy type %u does not exist, types are 0 (L2G) to %zu (AUTO)",
                    object_name_.c_str(), type, kCopyTypes.size() - 1);
    }
    const CopyType& wanted = kCopyTypes[type];
    if (const Status status = check_side("source", source, wanted.source, wanted.name, admission); status != Status::Ok)
        [[unlikely]]
        return status;
    if (const Status status = check_side("target", target, wanted.target, wanted.name, admission); status != Status::Ok)
        [[unlikely]]
        return status;
    if (type == kAutoCopy && !layout_.contains(source.address) && !layout_.contains(target.address)) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: neither the source 0x%" PRIxPTR " nor the target 0x%" PRIxPTR
                    " lies in the object's range 0x%" PRIxPTR "-0x%" PRIxPTR,
                    object_name_.c_str(), source.address, target.address, layout_.base(), layout_.end());
    }
    return Status::Ok;
}

Status CopyCheck::check_side(const char* side, Extent extent, Classes wanted, const char* type_name,
                             Admission& admission) const {
    if (extent.size_bytes == 0) [[unlikely]] {
        return fail(Status::InvalidParam, "%s: the size of the copy is 0, it must be at least 1 byte",
                    object_name_.c_str());
    }
    if (extent.address < kLowestAddress || extent.address >= kAddressLimit ||
        extent.size_bytes > kAddressLimit - extent.address) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: the %s of %zu bytes at 0x%" PRIxPTR " is no memory: addresses are 0x%" PRIxPTR
                    " to 0x%" PRIxPTR,
                    object_name_.c_str(), side, extent.size_bytes, extent.address, kLowestAddress, kAddressLimit);
    }
    if (layout_.contains(extent.address)) return slots_.check(side, extent, wanted, type_name);
    return check_outside(side, extent, wanted, type_name, admission);
}

// Outside this object: plain memory of the caller, or memory of another object of this process, which then vouches
// for it.
Status CopyCheck::check_outside(const char* side, Extent extent, Classes wanted, const char* type_name,
                                Admission& admission) const {
    const Region* region = RegionTable::process().first_touched(extent.address, extent.size_bytes);
    if (region != nullptr && region->base > extent.address) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: the %s of %zu bytes at 0x%" PRIxPTR " starts outside %s and reaches into its range 0x%" PRIxPTR
                    "-0x%" PRIxPTR,
                    object_name_.c_str(), side, extent.size_bytes, extent.address, region->space->object_name().c_str(),
                    region->base, region->end);
    }
    if ((wanted & kPlainMemory) == 0) [[unlikely]] {
        return fail(Status::InvalidParam,
                    "%s: the %s of a %s copy must be %s, but 0x%" PRIxPTR " lies outside the object's range 0x%" PRIxPTR
                    "-0x%" PRIxPTR,
                    object_name_.c_str(), side, type_name, describe(wanted), extent.address, layout_.base(),
                    layout_.end());
    }
    if (region == nullptr) [[likely]]
        return Status::Ok;
    admission.touches_other_object = true;
    return region->space->slots().check(side, extent, kAnyMemory, type_name);
}

Owners CopyCheck::other_owners(const Piece& piece) const {
    Owners others;
    add_owner(source_of(piece), others);
    add_owner(target_of(piece), others);
    return others;
}

Owners CopyCheck::other_owners(const std::vector<Piece>& pieces) const {
    Owners others;
    for (const Piece& piece : pieces) {
        add_owner(source_of(piece), others);
        add_owner(target_of(piece), others);
    }
    return others;
}

Owners CopyCheck::other_owners(const Rectangle& rectangle) const {
    Owners others;
    add_owner(source_of(rectangle), others);
    add_owner(target_of(rectangle), others);
    return others;
}

void CopyCheck::add_owner(Extent extent, Owners& others) const {
    if (layout_.contains(extent.address)) return;
    const Region* region = RegionTable::process().first_touched(extent.address, extent.size_bytes);
    if (region == nullptr) return;
    std::shared_ptr<Space> owner = region->space->weak_from_this().lock();
    if (owner != nullptr && std::ranges::find(others, owner) == others.end()) others.push_back(std::move(owner));
}

Status CopyCheck::recheck_all(const std::vector<Piece>& pieces, const Admission& admission,
                              const Owners& others) const {
    for (const Piece& piece : pieces) {
        if (const Status status = recheck_all(piece, admission, others); status != Status::Ok) return status;
    }
    return Status::Ok;
}

Status CopyCheck::recheck(Extent source, Extent target, const Admission& admission, const Owners& others) const {
    if (const Status status = object_state_.recheck(admission.since); status != Status::Ok) return status;
    if (const Status status = recheck_side(source, admission, others); status != Status::Ok) return status;
    return recheck_side(target, admission, others);
}

Status CopyCheck::recheck_side(Extent extent, const Admission& admission, const Owners& others) const {
    if (layout_.contains(extent.address)) return slots_.recheck(extent, admission.since);
    if (!admission.touches_other_object) return Status::Ok;
    for (const auto& other : others) {
        if (other->layout().contains(extent.address)) return other->slots().recheck(extent, admission.since);
    }
    if (!others.empty()) return Status::Ok;  // plain memory
    const Region* region = RegionTable::process().first_touched(extent.address, extent.size_bytes);
    return region == nullptr ? Status::Ok : region->space->slots().recheck(extent, admission.since);
}

}  // namespace memfabric
