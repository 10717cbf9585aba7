// SPDX-License-Identifier: Apache-2.0
#include "space/region_table.h"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "space/space.h"
#include "sync/rcu.h"

namespace memfabric {

// Never destroyed: objects may outlive static destructors.
RegionTable& RegionTable::process() {
    static RegionTable& table = *new RegionTable;
    return table;
}

RegionTable::RegionTable() : regions_(new Regions) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

const Region* RegionTable::first_touched(std::uintptr_t address, std::size_t size_bytes) const {
    const Regions& regions = *regions_.load(std::memory_order_seq_cst);
    const auto found = std::ranges::upper_bound(regions, address, {}, &Region::end);
    if (found == regions.end() || found->base >= address + size_bytes) return nullptr;
    return &*found;
}

const Region* RegionTable::first_touched(std::uintptr_t address, std::size_t size_bytes, Gap& gap) const {
    const Regions& regions = *regions_.load(std::memory_order_seq_cst);
    const auto found = std::ranges::upper_bound(regions, address, {}, &Region::end);
    if (found != regions.end() && found->base < address + size_bytes) return &*found;
    gap = {found == regions.begin() ? 0 : (found - 1)->end, found == regions.end() ? UINTPTR_MAX : found->base};
    return nullptr;
}

template <typename Change>
void RegionTable::publish(Change change) {
    const std::lock_guard lock(writers_);
    auto regions = std::make_unique<Regions>(*regions_.load(std::memory_order_relaxed));
    change(*regions);
    const Regions* before = regions_.exchange(regions.release(), std::memory_order_seq_cst);
    retired_.put(std::shared_ptr<const Regions>(before));
}

void RegionTable::add(Region region) {
    publish([region](Regions& regions) {
        regions.insert(std::ranges::upper_bound(regions, region.base, {}, &Region::base), region);
    });
}

void RegionTable::remove(std::uintptr_t base) {
    publish([base](Regions& regions) {
        std::erase_if(regions, [base](const Region& region) { return region.base == base; });
    });
    rcu::synchronize();
}

void RegionTable::before_fork() { process().writers_.lock(); }

void RegionTable::after_fork_in_parent() { process().writers_.unlock(); }

void RegionTable::after_fork_in_child() {
    for (const Region& region : *process().regions_.load(std::memory_order_relaxed)) region.space->disown();
    process().writers_.unlock();
}

}  // namespace memfabric
