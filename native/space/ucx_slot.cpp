// SPDX-License-Identifier: Apache-2.0
#include "space/ucx_slot.h"

#include <cstddef>

#include "base/last_error.h"
#include "space/space.h"

namespace memfabric {

Status UcxSlot::serve(const Space& space, const ucx::Options& options, ucx::RemoteMemory& for_initiators) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return fail(Status::InvalidParam, "%s: the handle is closed", space.object_name().c_str());
    for (std::uint32_t index = 0; index < kTiers; ++index) {
        const auto tier = static_cast<Tier>(index);
        const std::uint64_t from = served_bytes_[index];
        const std::uint64_t allocated = space.slots().allocated_bytes(space.local_rank(), tier);
        if (allocated <= from) continue;
        auto* base = reinterpret_cast<std::byte*>(space.layout().slot_address(space.local_rank(), tier) + from);
        const Status status = served_ == nullptr ? ucx::ServedMemory::serve(base, allocated - from, options, served_)
                                                 : served_->add(base, allocated - from);
        if (status != Status::Ok) return status;
        served_bytes_[index] = allocated;
    }
    for_initiators = served_ == nullptr ? ucx::RemoteMemory{} : served_->for_initiators();
    return Status::Ok;
}

void UcxSlot::end() {
    const std::lock_guard lock(mutex_);
    served_.reset();
    served_bytes_ = {};
}

void UcxSlot::end_ever() {
    const std::lock_guard lock(mutex_);
    served_.reset();
    is_over_ = true;
}

}  // namespace memfabric
