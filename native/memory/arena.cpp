// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/last_error.h"
#include "memory/exported_memory.h"
#include "memory/machine_memory.h"

namespace memfabric {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

constexpr std::uint64_t round_up(std::uint64_t number, std::uint64_t step) { return (number + step - 1) / step * step; }

}  // namespace

Status Arena::make(std::unique_ptr<Arena>& made) {
    auto arena = std::make_unique<Arena>();
    // Twice what could ever be filled, so that holes between allocations do not matter.
    const std::uint64_t size_bytes = std::bit_ceil(2 * machine_bytes());
    if (const Status status = make_memory_file("memfabric-arena", size_bytes, arena->file_); status != Status::Ok) {
        return status;
    }
    if (const Status status = SharedMapping::map(arena->file_.get(), size_bytes, /*writable=*/true, arena->mapping_);
        status != Status::Ok) {
        return status;
    }
    arena->range_ = ExportedMemory::process().add(arena->start(), size_bytes, arena->file_.get(), 0);
    made = std::move(arena);
    return Status::Ok;
}

Arena::~Arena() {
    if (range_ != 0) ExportedMemory::process().remove(range_);
}

Status Arena::allocate(std::uint64_t size_bytes, std::uint64_t& address) {
    if (size_bytes == 0) return fail(Status::InvalidParam, "cannot allocate 0 bytes");
    if (size_bytes > machine_bytes()) {
        return fail(Status::MallocFailed,
                    "%" PRIu64 " bytes are more than the %" PRIu64 " bytes of memory and swap of this machine",
                    size_bytes, machine_bytes());
    }
    const std::uint64_t step = size_bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
    const std::uint64_t rounded = round_up(size_bytes, step);
    const std::lock_guard lock(mutex_);
    std::uint64_t offset = 0;  // the first gap that is large enough
    for (const auto& [taken, taken_bytes] : allocated_) {
        if (taken >= offset + rounded) break;
        offset = round_up(taken + taken_bytes, step);
    }
    if (offset + rounded > mapping_.size_bytes()) {
        return fail(Status::MallocFailed, "no gap of %" PRIu64 " bytes is left among %zu allocations; free some",
                    rounded, allocated_.size());
    }
    allocated_.emplace(offset, rounded);
    address = start() + offset;
    return Status::Ok;
}

bool Arena::size_of(std::uint64_t address, std::uint64_t& size_bytes) const {
    const std::lock_guard lock(mutex_);
    const auto found = allocated_.find(address - start());
    if (address < start() || found == allocated_.end()) return false;
    size_bytes = found->second;
    return true;
}

Status Arena::release(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto found = allocated_.find(address - start());
    if (address < start() || found == allocated_.end()) {
        return fail(Status::NotExist, "0x%" PRIx64 " is not the start of memory from trans_malloc", address);
    }
    const auto offset = static_cast<off_t>(found->first);
    const auto size_bytes = static_cast<off_t>(found->second);
    if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size_bytes) != 0) {
        return fail(Status::Error, "cannot give %" PRIu64 " bytes at 0x%" PRIx64 " back: %s", found->second, address,
                    std::strerror(errno));
    }
    allocated_.erase(found);
    return Status::Ok;
}

}  // namespace memfabric
