// SPDX-License-Identifier: Apache-2.0
#include "transfer/peer_segments.h"

#include <utility>

#include "base/last_error.h"
#include "base/notice.h"
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
    notice(
        "session %s: this process has no descriptor left for %zu bytes of its memory: transfers there take the slower "
        "way through the kernel instead of being plain copies; raise the limit of open files (ulimit -n)",
        session.c_str(), static_cast<std::size_t>(offered.size_bytes));
    return insert(offered, std::make_shared<Held>());
}

Status PeerSegments::insert(const Offered& offered, std::shared_ptr<Held> held) {
    const std::lock_guard lock(writers_);
    if (has(offered.id)) return fail(Status::Duplicated, "segment %u has been announced twice", offered.id);
    table_.update(
        [&](Table& table) { table.push_back({offered.id, offered.start, offered.size_bytes, std::move(held)}); });
    return Status::Ok;
}

void PeerSegments::remove(std::uint32_t id) {
    const std::lock_guard lock(writers_);
    if (!has(id)) return;
    table_.update([id](Table& table) { std::erase_if(table, [id](const Entry& entry) { return entry.id == id; }); });
}

void PeerSegments::clear() {
    const std::lock_guard lock(writers_);
    table_.replace(std::make_unique<const Table>());
}

bool PeerSegments::collect() {
    const std::lock_guard lock(writers_);
    return table_.collect();
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
            notice(
                "session %s: %zu bytes of its memory cannot be mapped here: transfers there take the slower way "
                "through the kernel instead of being plain copies: %s",
                session.c_str(), static_cast<std::size_t>(size_bytes), last_error().c_str());
            set_last_error(before);  // no failure of the call: the kernel's route leads there as well
        }
    }
    return held.base.load(std::memory_order_relaxed);
}

}  // namespace memfabric
