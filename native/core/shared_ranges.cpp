// SPDX-License-Identifier: Apache-2.0
#include "core/shared_ranges.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "core/shared_mapping.h"

namespace memfabric {

// Never destroyed: objects may outlive static destructors.
SharedRanges& SharedRanges::process() {
    static SharedRanges& ranges = *new SharedRanges;
    return ranges;
}

// A forked child inherits the memory but none of the objects: it starts with nothing to show, and nobody watches.
SharedRanges::SharedRanges() {
    pthread_atfork(
        [] {
            process().watching_.lock();
            process().mutex_.lock();
        },
        [] {
            process().mutex_.unlock();
            process().watching_.unlock();
        },
        [] {
            process().ranges_.clear();
            process().watchers_.clear();
            process().mutex_.unlock();
            process().watching_.unlock();
        });
}

std::uint32_t SharedRanges::add(std::uint64_t start, std::uint64_t size_bytes, int fd, std::uint64_t file_offset) {
    if (!cannot_shrink(fd)) return 0;
    auto file = std::make_shared<OwnedFd>(fcntl(fd, F_DUPFD_CLOEXEC, kLowestOwnFd));
    if (!*file) return 0;
    const std::lock_guard lock(mutex_);
    SharedRange range{++last_id_, start, start + size_bytes, file_offset, std::move(file)};
    const auto place = std::ranges::upper_bound(ranges_, start, {}, &SharedRange::start);
    ranges_.insert(place, std::move(range));
    return last_id_;
}

void SharedRanges::remove(std::uint32_t id) {
    const std::lock_guard watching(watching_);
    SharedRange range;
    {
        // First nobody can show it any more, then those who did take it back.
        const std::lock_guard lock(mutex_);
        const auto found = std::ranges::find(ranges_, id, &SharedRange::id);
        if (found == ranges_.end()) return;
        range = std::move(*found);
        ranges_.erase(found);
    }
    for (RangeWatcher* watcher : watchers_) watcher->range_ends(range);
}

std::vector<SharedRange> SharedRanges::all() const {
    const std::lock_guard lock(mutex_);
    return ranges_;
}

void SharedRanges::watch(RangeWatcher* watcher) {
    const std::lock_guard watching(watching_);
    watchers_.push_back(watcher);
}

void SharedRanges::unwatch(RangeWatcher* watcher) {
    const std::lock_guard watching(watching_);
    std::erase(watchers_, watcher);
}

}  // namespace memfabric
