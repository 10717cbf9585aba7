// SPDX-License-Identifier: Apache-2.0
#include "ucx/served_ranges.h"

#include <algorithm>
#include <utility>

#include "base/last_error.h"

namespace memfabric::ucx {

Status ServedRanges::serve(Group& group) const {
    Status status = Status::Ok;
    for (const Extent& range : group.ranges) {
        auto* base = reinterpret_cast<std::byte*>(range.address);
        status = group.served == nullptr ? ServedMemory::serve(base, range.size_bytes, options_, group.served)
                                         : group.served->add(base, range.size_bytes);
        if (status == Status::Ok) continue;
        group.obstacle = last_error();
        group.served.reset();
        return status;
    }
    return status;
}

Status ServedRanges::add(std::span<const Extent> ranges) {
    if (ranges.empty()) return Status::Ok;
    const std::lock_guard changing(changing_);
    auto group = std::make_shared<Group>();
    group->ranges.assign(ranges.begin(), ranges.end());
    const Status status = serve(*group);
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::move(group));
    return status;
}

void ServedRanges::remove(const std::function<bool(const Extent&)>& goes) {
    const std::lock_guard changing(changing_);
    std::vector<std::shared_ptr<const Group>> ended;
    std::vector<std::shared_ptr<const Group>> kept;
    {
        const std::lock_guard lock(mutex_);
        kept = groups_;
    }
    std::erase_if(kept, [&](const std::shared_ptr<const Group>& group) {
        if (std::ranges::none_of(group->ranges, goes)) return false;
        ended.push_back(group);
        return true;
    });
    if (ended.empty()) return;
    for (const std::shared_ptr<const Group>& group : ended) {
        auto rest = std::make_shared<Group>();
        std::ranges::remove_copy_if(group->ranges, std::back_inserter(rest->ranges), goes);
        if (rest->ranges.empty()) continue;
        const std::string before = last_error();
        if (serve(*rest) != Status::Ok) set_last_error(before);  // initiators are told
        kept.push_back(std::move(rest));
    }
    const std::lock_guard lock(mutex_);
    groups_ = std::move(kept);
    // `ended` goes now, under the lock for changes: nobody else has a group for longer than a moment.
}

// The region that reaches farthest: registrations may overlap.
ServedAt ServedRanges::find(std::uint64_t address) const {
    ServedAt found;
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<const Group>& group : groups_) {
        if (group->served == nullptr) {
            const bool inside = std::ranges::any_of(group->ranges, [&](const Extent& range) {
                return address >= range.address && address - range.address < range.size_bytes;
            });
            if (!inside || found.verdict == ServedAt::Verdict::Served) continue;
            found.verdict = ServedAt::Verdict::Failed;
            found.obstacle = group->obstacle;
            continue;
        }
        const RemoteMemory& memory = group->served->for_initiators();
        for (const RemoteRegion& region : memory.regions) {
            if (!region.contains(address)) continue;
            if (found.verdict == ServedAt::Verdict::Served && region.end() <= found.region.end()) continue;
            found = {ServedAt::Verdict::Served, memory.worker_address, region, {}};
        }
    }
    return found;
}

}  // namespace memfabric::ucx
