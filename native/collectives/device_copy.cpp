// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_copy.h"

#include <cinttypes>
#include <memory>

#include "base/last_error.h"
#include "base/notice.h"
#include "copy/type.h"
#include "space/region_table.h"
#include "space/space.h"
#include "sync/rcu.h"

namespace memfabric {
namespace {

std::shared_ptr<Space> owner_of(std::uintptr_t address) {
    const rcu::ReadGuard guard;
    const Region* region = RegionTable::process().first_touched(address, 1);
    return region == nullptr ? nullptr : region->space->weak_from_this().lock();
}

}  // namespace

std::int32_t copy_for_kernel(void* target, const void* source, std::uint64_t size_bytes) {
    const auto to = reinterpret_cast<std::uintptr_t>(target);
    const auto from = reinterpret_cast<std::uintptr_t>(source);
    if (size_bytes == 0) return 0;
    std::shared_ptr<Space> space = owner_of(to);
    if (space == nullptr) space = owner_of(from);
    const Status status =
        space == nullptr ? fail(Status::InvalidParam, "0x%" PRIxPTR " and 0x%" PRIxPTR " lie in no object", from, to)
                         : space->copy(from, to, size_bytes, kAutoCopy);
    if (status == Status::Ok) return 0;
    notice("a kernel's copy of %" PRIu64 " bytes failed with %d: %s", size_bytes, static_cast<int>(status),
           last_error().c_str());
    return static_cast<std::int32_t>(status);
}

}  // namespace memfabric
