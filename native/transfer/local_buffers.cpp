// SPDX-License-Identifier: Apache-2.0
#include "transfer/local_buffers.h"

#include <cinttypes>

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
    Side side;
    const Status status = region.space->slots().resolve("buffer", buffer, kAnyMemory, "transfer", side);
    if (status != Status::Ok) return status;
    if (side.transport != nullptr) {
        return fail(Status::InvalidParam,
                    "%s: the buffer at 0x%" PRIxPTR
                    " is memory of rank %u that is not mapped in this process; copy it "
                    "into memory of this process first",
                    region.space->object_name().c_str(), buffer.address, side.rank);
    }
    if (pins_ != nullptr) pins_->add(side);
    return Status::Ok;
}

Status LocalBuffers::ask_owner_again(Extent buffer) const {
    const Region* region = RegionTable::process().first_touched(buffer.address, buffer.size_bytes);
    return region == nullptr ? Status::Ok : region->space->slots().recheck(buffer, since_);
}

}  // namespace memfabric
