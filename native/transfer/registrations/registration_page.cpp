// SPDX-License-Identifier: Apache-2.0
#include "transfer/registrations/registration_page.h"

namespace memfabric {

Status RegistrationPage::make(const InstanceId& instance, std::shared_ptr<RegistrationPage>& made) {
    auto page = std::make_shared<RegistrationPage>();
    OwnedFd file;
    if (const Status status = make_memory_file("memfabric-registrations", RegistrationWords::kPageBytes, file);
        status != Status::Ok) {
        return status;
    }
    if (const Status status =
            SharedMapping::map(file.get(), RegistrationWords::kPageBytes, /*writable=*/true, page->mapping_);
        status != Status::Ok) {
        return status;
    }
    if (const Status status = forbid_writing(file, page->shown_); status != Status::Ok) return status;
    RegistrationWords& words = page->words();
    words.magic = RegistrationWords::kMagic;
    words.version = RegistrationWords::kVersion;
    words.capacity = RegistrationWords::kCapacity;
    words.instance = instance;
    made = std::move(page);
    return Status::Ok;
}

// Each store is a release: a reader that sees one of them also sees the generation that made its buffer stale.
void RegistrationPage::publish(std::span<const Interval> intervals) {
    RegistrationWords& page = words();
    const std::uint64_t next = page.generation.load(std::memory_order_relaxed) + 1;
    RegistrationWords::Entry* entry = page.buffer(next);
    for (const Interval& interval : intervals) {
        entry->start.store(interval.start, std::memory_order_release);
        entry->end.store(interval.end, std::memory_order_release);
        entry->segment.store(interval.segment, std::memory_order_release);
        ++entry;
    }
    page.counts[next & 1].store(intervals.size(), std::memory_order_release);
    page.generation.store(next, std::memory_order_seq_cst);
}

}  // namespace memfabric
