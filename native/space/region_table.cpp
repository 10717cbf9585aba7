// SPDX-License-Identifier: Apache-2.0
#include "space/region_table.h"

#include <algorithm>

#include "space/space.h"
#include "sync/rcu.h"

namespace memfabric {

// Never destroyed: objects may outlive static destructors.
RegionTable& RegionTable::process() {
    static RegionTable& table = *new RegionTable;
    return table;
}

RegionTable::RegionTable() { hold_across_forks<RegionTable>(); }

const Region* RegionTable::first_touched(std::uintptr_t address, std::size_t size_bytes) const {
    const Regions& regions = regions_.read();
    const auto found = std::ranges::upper_bound(regions, address, {}, &Region::end);
    if (found == regions.end() || found->base >= address + size_bytes) return nullptr;
    return &*found;
}

const Region* RegionTable::first_touched(std::uintptr_t address, std::size_t size_bytes, Gap& gap) const {
    const Regions& regions = regions_.read();
    const auto found = std::ranges::upper_bound(regions, address, {}, &Region::end);
    if (found != regions.end() && found->base < address + size_bytes) return &*found;
    gap = {found == regions.begin() ? 0 : (found - 1)->end, found == regions.end() ? UINTPTR_MAX : found->base};
    return nullptr;
}

void RegionTable::add(Region region) {
    const std::lock_guard lock(writers_);
    regions_.update([region](Regions& regions) {
        regions.insert(std::ranges::upper_bound(regions, region.base, {}, &Region::base), region);
    });
}

void RegionTable::remove(std::uintptr_t base) {
    {
        const std::lock_guard lock(writers_);
        regions_.update([base](Regions& regions) {
            std::erase_if(regions, [base](const Region& region) { return region.base == base; });
        });
    }
    rcu::synchronize();
}

void RegionTable::begin_in_child() {
    for (const Region& region : regions_.read()) region.space->disown();
    writers_.unlock();
}

}  // namespace memfabric
