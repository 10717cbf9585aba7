// SPDX-License-Identifier: Apache-2.0
#include "transfer/peer_segments.h"

#include <utility>

#include "base/last_error.h"
#include "base/pause_point.h"

namespace memfabric {

Status PeerSegments::add(const Offered& offered, OwnedFd file) {
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 56;
    if (offered.size_bytes == 0 || offered.size_bytes > kLargest || offered.file_offset > kLargest ||
        offered.start > kLargest) {
        return fail(Status::InvalidParam, "a segment of %zu bytes cannot be",
                    static_cast<std::size_t>(offered.size_bytes));
    }
    if (const Status status = check_memory_file(file.get(), offered.file_offset + offered.size_bytes);
        status != Status::Ok) {
        return status;
    }
    auto held = std::make_shared<Held>();
    held->file_offset = offered.file_offset;
    held->file = std::move(file);
    return insert(offered, std::move(held));
}

Status PeerSegments::miss(const Offered& offered) {
    missed_.fetch_add(1, std::memory_order_relaxed);
    return insert(offered, std::make_shared<Held>());
}

Status PeerSegments::insert(const Offered& offered, std::shared_ptr<Held> held) {
    const std::lock_guard lock(writers_);
    if (has(offered.id)) return fail(Status::Duplicated, "segment %u has been announced twice", offered.id);
    auto next = std::make_unique<Table>(*table_.load(std::memory_order_relaxed));
    next->push_back({offered.id, offered.start, offered.size_bytes, std::move(held)});
    publish(std::move(next));
    return Status::Ok;
}

void PeerSegments::remove(std::uint32_t id) {
    const std::lock_guard lock(writers_);
    auto next = std::make_unique<Table>(*table_.load(std::memory_order_relaxed));
    if (std::erase_if(*next, [id](const Entry& entry) { return entry.id == id; }) != 0) publish(std::move(next));
}

void PeerSegments::clear() {
    const std::lock_guard lock(writers_);
    publish(std::make_unique<Table>());
}

bool PeerSegments::collect() {
    const std::lock_guard lock(writers_);
    return retired_.collect();
}

std::byte* PeerSegments::map(const Entry& entry) {
    PausePoint::reach("transfer.map_segment");
    const std::lock_guard lock(writers_);
    Held& held = *entry.held;
    if (held.file) {
        const std::string before = last_error();
        const OwnedFd file = std::move(held.file);
        const std::uint64_t size_bytes = held.file_offset + entry.size_bytes;
        if (SharedMapping::map(file.get(), size_bytes, /*writable=*/true, held.mapping) == Status::Ok) {
            held.base.store(held.mapping.address() + held.file_offset, std::memory_order_release);
        } else {
            set_last_error(before);  // no failure of the call: the kernel's route leads there as well
        }
    }
    return held.base.load(std::memory_order_relaxed);
}

// With the lock held. Mappings go with the last table that has them.
void PeerSegments::publish(std::unique_ptr<const Table> table) {
    const Table* before = table_.exchange(table.release(), std::memory_order_seq_cst);
    retired_.put(std::shared_ptr<const Table>(before));
}

}  // namespace memfabric
