// SPDX-License-Identifier: Apache-2.0
#include "transfer/local_buffers.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/last_error.h"
#include "copy/type.h"
#include "space/space.h"

namespace memfabric {

Status LocalBuffers::ask_owner(const Region& region, Extent buffer) {
    if (region.base > buffer.address) {
        return fail(Status::InvalidParam,
                    "the buffer of %zu bytes at 0x%" PRIxPTR " starts outside %s and reaches into its range 0x%" PRIxPTR
                    "-0x%" PRIxPTR,
                    buffer.size_bytes, buffer.address, region.space->object_name().c_str(), region.base, region.end);
    }
    belongs_to_object_ = true;
    return region.space->slots().check("buffer", buffer, kAnyMemory, "transfer");
}

Status LocalBuffers::ask_owner_again(Extent buffer) const {
    const Region* region = RegionTable::process().first_touched(buffer.address, buffer.size_bytes);
    return region == nullptr ? Status::Ok : region->space->slots().recheck(buffer, since_);
}

void BufferOwners::add(Extent buffer) {
    const Region* region = RegionTable::process().first_touched(buffer.address, buffer.size_bytes);
    if (region == nullptr) return;
    std::shared_ptr<Space> owner = region->space->weak_from_this().lock();
    if (owner != nullptr && std::ranges::find(owners_, owner) == owners_.end()) owners_.push_back(std::move(owner));
}

Status BufferOwners::check() const {
    for (const auto& owner : owners_) {
        if (!owner->is_closed()) continue;
        return fail(Status::NotConnected,
                    "%s was destroyed during the transfer, and a buffer of this process lay in it",
                    owner->object_name().c_str());
    }
    return Status::Ok;
}

}  // namespace memfabric
