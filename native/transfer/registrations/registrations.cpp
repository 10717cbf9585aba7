// SPDX-License-Identifier: Apache-2.0
#include "transfer/registrations/registrations.h"

#include <algorithm>
#include <cinttypes>

#include "base/last_error.h"
#include "memory/exported_memory.h"
#include "memory/readable_memory.h"

namespace memfabric {
namespace {

Status check_range(std::uint64_t start, std::uint64_t size_bytes, ReadableMemory& memory) {
    if (start == 0 || size_bytes == 0) {
        return fail(Status::InvalidParam, "cannot register %" PRIu64 " bytes at 0x%" PRIx64 ": %s must not be 0",
                    size_bytes, start, start == 0 ? "the address" : "the size");
    }
    if (start + size_bytes < start || start + size_bytes > (std::uint64_t{1} << 56)) {
        return fail(Status::InvalidParam,
                    "cannot register %" PRIu64 " bytes at 0x%" PRIx64 ": they reach beyond the end of all addresses",
                    size_bytes, start);
    }
    bool readable = false;
    if (const Status status = memory.covers(start, size_bytes, readable); status != Status::Ok) return status;
    if (!readable) {
        return fail(
            Status::InvalidParam,
            "cannot register %" PRIu64 " bytes at 0x%" PRIx64
            ": there are addresses among them at which this process has no readable memory; check address and size",
            size_bytes, start);
    }
    return Status::Ok;
}

// Intervals that lie in one segment each, or in none, and the segments that occur; both inputs are sorted.
std::vector<Interval> cut(const std::vector<Interval>& intervals, const std::vector<ExportedRange>& ranges,
                          std::vector<ExportedRange>& used) {
    std::vector<Interval> pieces;
    pieces.reserve(intervals.size());
    auto range = ranges.begin();
    for (Interval rest : intervals) {
        while (range != ranges.end() && range->end <= rest.start) ++range;
        for (auto inside = range; inside != ranges.end() && inside->start < rest.end; ++inside) {
            if (inside->start > rest.start) pieces.push_back({rest.start, inside->start, kPrivateMemory});
            const std::uint64_t start = std::max(rest.start, inside->start);
            const std::uint64_t end = std::min(rest.end, inside->end);
            pieces.push_back({start, end, inside->id});
            if (used.empty() || used.back().id != inside->id) used.push_back(*inside);
            rest.start = end;
        }
        if (rest.start < rest.end) pieces.push_back(rest);
    }
    return pieces;
}

}  // namespace

Status Registrations::add(std::span<const std::uint64_t> starts, std::span<const std::uint64_t> sizes_bytes) {
    if (starts.size() > RegistrationWords::kCapacity) {  // before any is read: a caller's wrong count
        return fail(Status::NoResources, "%zu registrations exceed the limit of %u", starts.size(),
                    RegistrationWords::kCapacity);
    }
    ReadableMemory memory;
    for (std::size_t i = 0; i < starts.size(); ++i) {
        if (const Status status = check_range(starts[i], sizes_bytes[i], memory); status != Status::Ok) return status;
    }
    const std::lock_guard lock(mutex_);
    if (ends_.size() + starts.size() > RegistrationWords::kCapacity) {
        return fail(Status::NoResources, "%zu more registrations beside the %zu there are exceed the limit of %u",
                    starts.size(), ends_.size(), RegistrationWords::kCapacity);
    }
    for (std::size_t i = 0; i < starts.size(); ++i) {
        std::uint64_t& end = ends_[starts[i]];
        end = std::max(end, starts[i] + sizes_bytes[i]);
        unsettled_.erase(starts[i]);
    }
    publish();
    return Status::Ok;
}

Status Registrations::remove(std::span<const std::uint64_t> starts) {
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t start : starts) {
        if (ends_.contains(start) || unsettled_.contains(start)) continue;
        return fail(Status::NotExist, "no registered memory starts at 0x%" PRIx64, start);
    }
    for (const std::uint64_t start : starts) ends_.erase(start);
    unsettled_.insert(starts.begin(), starts.end());
    publish();
    return Status::Ok;
}

void Registrations::settle(std::span<const std::uint64_t> starts) {
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t start : starts) unsettled_.erase(start);
}

bool Registrations::remove_inside(std::uint64_t start, std::uint64_t end) {
    const std::lock_guard lock(mutex_);
    if (std::erase_if(ends_, [&](const auto& one) { return one.first < end && one.second > start; }) == 0) return false;
    publish();
    return true;
}

bool Registrations::has(std::uint64_t start) const {
    const std::lock_guard lock(mutex_);
    return ends_.contains(start);
}

std::size_t Registrations::count() const {
    const std::lock_guard lock(mutex_);
    return ends_.size();
}

std::vector<Extent> Registrations::list() const {
    const std::lock_guard lock(mutex_);
    std::vector<Extent> all;
    for (const auto& [start, end] : ends_) all.push_back({start, end - start});
    return all;
}

void Registrations::show_on(RegistrationPage* page, std::shared_ptr<SegmentOffers> offers) {
    const std::lock_guard lock(mutex_);
    page_ = page;
    offers_ = std::move(offers);
    publish();
}

void Registrations::clear() {
    const std::lock_guard lock(mutex_);
    ends_.clear();
    unsettled_.clear();
    publish();
}

// Called with the lock held.
void Registrations::publish() {
    if (page_ == nullptr) return;
    std::vector<ExportedRange> used;
    std::vector<Interval> intervals = cut(merged(), ExportedMemory::process().all(), used);
    // Cutting may add intervals to a full table; the last ones are then left out.
    if (intervals.size() > RegistrationWords::kCapacity) intervals.resize(RegistrationWords::kCapacity);
    offers_->show(used);
    page_->publish(intervals);
}

// Overlapping and adjacent registrations are one interval.
std::vector<Interval> Registrations::merged() const {
    std::vector<Interval> intervals;
    intervals.reserve(ends_.size());
    for (const auto& [start, end] : ends_) {
        if (!intervals.empty() && start <= intervals.back().end) {
            intervals.back().end = std::max(intervals.back().end, end);
        } else {
            intervals.push_back({start, end, kPrivateMemory});
        }
    }
    return intervals;
}

}  // namespace memfabric
