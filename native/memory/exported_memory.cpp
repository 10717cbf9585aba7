// SPDX-License-Identifier: Apache-2.0
#include "memory/exported_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "memory/memfd.h"

namespace memfabric {

// Never destroyed: objects may outlive static destructors.
ExportedMemory& ExportedMemory::process() {
    static ExportedMemory& ranges = *new ExportedMemory;
    return ranges;
}

void ExportedMemory::before_fork() {
    watching_.lock();
    mutex_.lock();
}

void ExportedMemory::after_fork() {
    mutex_.unlock();
    watching_.unlock();
}

// A child inherits the memory but none of the objects: it starts with nothing to show, and nobody watches.
void ExportedMemory::begin_in_child() {
    ranges_.clear();
    watchers_.clear();
    after_fork();
}

std::uint32_t ExportedMemory::add(std::uint64_t start, std::uint64_t size_bytes, int fd, std::uint64_t file_offset) {
    if (!cannot_shrink(fd)) return 0;
    auto file = std::make_shared<OwnedFd>(fcntl(fd, F_DUPFD_CLOEXEC, kLowestOwnFd));
    if (!*file) return 0;
    const std::lock_guard lock(mutex_);
    ExportedRange range{++last_id_, start, start + size_bytes, file_offset, std::move(file)};
    const auto place = std::ranges::upper_bound(ranges_, start, {}, &ExportedRange::start);
    ranges_.insert(place, std::move(range));
    return last_id_;
}

void ExportedMemory::remove(std::uint32_t id) {
    const std::lock_guard watching(watching_);
    ExportedRange range;
    {
        // First nobody can show it any more, then those who did take it back.
        const std::lock_guard lock(mutex_);
        const auto found = std::ranges::find(ranges_, id, &ExportedRange::id);
        if (found == ranges_.end()) return;
        range = std::move(*found);
        ranges_.erase(found);
    }
    for (ExportWatcher* watcher : watchers_) watcher->export_ends(range);
}

std::vector<ExportedRange> ExportedMemory::all() const {
    const std::lock_guard lock(mutex_);
    return ranges_;
}

void ExportedMemory::watch(ExportWatcher* watcher) {
    const std::lock_guard watching(watching_);
    watchers_.push_back(watcher);
}

void ExportedMemory::unwatch(ExportWatcher* watcher) {
    const std::lock_guard watching(watching_);
    std::erase(watchers_, watcher);
}

}  // namespace memfabric
