// SPDX-License-Identifier: Apache-2.0
//
// Every address range that an object of this process has reserved, so that an address which one object takes for plain
// memory of the caller is checked by the object it really belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/fork_guard.h"
#include "sync/rcu.h"

namespace memfabric {

class Space;

struct Region {
    std::uintptr_t base;
    std::uintptr_t end;
    Space* space;
};

// Addresses [start, end) that no object of this process has reserved.
struct Gap {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;

    bool contains(std::uintptr_t address, std::size_t size_bytes) const {
        return address >= start && address < end && size_bytes <= end - address;
    }
};

// Readers hold an rcu::ReadGuard while they use an answer: the space it names lives until the guard is left. They never
// block. Writers are rare and take turns.
class RegionTable {
public:
    static RegionTable& process();

    void add(Region region);
    void remove(std::uintptr_t base);  // returns when no reader can still see the region

    // The first region that shares an address with [address, address + size_bytes), or nullptr. O(log regions).
    const Region* first_touched(std::uintptr_t address, std::size_t size_bytes) const;
    // The same; if there is none, `gap` is what lies around them: other addresses inside need no look-up.
    const Region* first_touched(std::uintptr_t address, std::size_t size_bytes, Gap& gap) const;

private:
    using Regions = std::vector<Region>;  // sorted by base, disjoint, never changed once published

    RegionTable();
    friend void hold_across_forks<RegionTable>();
    void before_fork() { writers_.lock(); }
    void after_fork() { writers_.unlock(); }
    void begin_in_child();  // no object of the parent works in the child

    std::mutex writers_;
    rcu::Published<Regions> regions_;  // changed under `writers_`
};

}  // namespace memfabric
