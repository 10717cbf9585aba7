// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>
#include <utility>

#include "base/last_error.h"
#include "memory/exported_memory.h"
#include "memory/machine_memory.h"

namespace memfabric {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kFirstStepBytes = std::uint64_t{64} << 20;

constexpr std::uint64_t round_up(std::uint64_t number, std::uint64_t step) { return (number + step - 1) / step * step; }

}  // namespace

Status Arena::Step::make(std::uint64_t size_bytes, std::unique_ptr<Step>& made) {
    auto step = std::make_unique<Step>();
    if (const Status status = make_memory_file("memfabric-arena", size_bytes, step->file_); status != Status::Ok) {
        return status;
    }
    if (const Status status = SharedMapping::map(step->file_.get(), size_bytes, /*writable=*/true, step->mapping_);
        status != Status::Ok) {
        return status;
    }
    step->range_ = ExportedMemory::process().add(step->start(), size_bytes, step->file_.get(), 0);
    made = std::move(step);
    return Status::Ok;
}

Arena::Step::~Step() {
    if (range_ != 0) ExportedMemory::process().remove(range_);
}

bool Arena::Step::take(std::uint64_t size_bytes, std::uint64_t alignment, std::uint64_t& address) {
    std::uint64_t offset = 0;  // the first gap that is large enough
    for (const auto& [taken, taken_bytes] : allocated_) {
        if (taken >= offset + size_bytes) break;
        offset = round_up(taken + taken_bytes, alignment);
    }
    if (offset + size_bytes > mapping_.size_bytes()) return false;
    allocated_.emplace(offset, size_bytes);
    address = start() + offset;
    return true;
}

std::uint64_t Arena::Step::allocated_bytes(std::uint64_t address) const {
    const auto found = allocated_.find(address - start());
    return address < start() || found == allocated_.end() ? 0 : found->second;
}

Status Arena::Step::give_back(std::uint64_t address) {
    const auto found = allocated_.find(address - start());
    const auto offset = static_cast<off_t>(found->first);
    const auto size_bytes = static_cast<off_t>(found->second);
    if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size_bytes) != 0) {
        return fail(Status::Error, "cannot give %" PRIu64 " bytes at 0x%" PRIx64 " back: %s", found->second, address,
                    std::strerror(errno));
    }
    allocated_.erase(found);
    return Status::Ok;
}

Status Arena::allocate(std::uint64_t size_bytes, const MemoryLimit& limit, std::uint64_t& address) {
    if (size_bytes == 0) return fail(Status::InvalidParam, "capacity is 0 bytes, expected at least 1");
    if (size_bytes > machine_bytes()) {
        return fail(Status::MallocFailed,
                    "%" PRIu64 " bytes are more than the %" PRIu64 " bytes of memory and swap of this machine",
                    size_bytes, machine_bytes());
    }
    if (size_bytes > limit.most_bytes) {
        return fail(Status::MallocFailed,
                    "%" PRIu64 " bytes were asked for, this process may have %" PRIu64
                    " bytes in all (%s); ask for less, or raise the memory limit of the container",
                    size_bytes, limit.most_bytes, limit.holder.c_str());
    }
    const std::uint64_t alignment = size_bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
    const std::uint64_t rounded = round_up(size_bytes, alignment);
    const std::lock_guard lock(mutex_);
    for (const auto& step : steps_) {
        if (step->take(rounded, alignment, address)) return Status::Ok;
    }
    if (const Status status = grow(rounded); status != Status::Ok) return status;
    steps_.back()->take(rounded, alignment, address);
    return Status::Ok;
}

// Called with the lock held. Where the limits of the process do not allow a whole step, one that just suffices.
Status Arena::grow(std::uint64_t least_bytes) {
    std::uint64_t wanted_bytes = kFirstStepBytes;
    for (const auto& step : steps_) wanted_bytes += step->size_bytes();
    wanted_bytes = std::max(wanted_bytes, least_bytes);
    std::unique_ptr<Step> made;
    if (wanted_bytes > least_bytes) {
        const std::string before = last_error();
        if (Step::make(wanted_bytes, made) != Status::Ok) set_last_error(before);
    }
    if (made == nullptr) {
        if (const Status status = Step::make(least_bytes, made); status != Status::Ok) return status;
    }
    steps_.push_back(std::move(made));
    return Status::Ok;
}

Arena::Step* Arena::holder_of(std::uint64_t address, std::uint64_t& size_bytes) const {
    for (const auto& step : steps_) {
        size_bytes = step->allocated_bytes(address);
        if (size_bytes != 0) return step.get();
    }
    return nullptr;
}

bool Arena::size_of(std::uint64_t address, std::uint64_t& size_bytes) const {
    const std::lock_guard lock(mutex_);
    return holder_of(address, size_bytes) != nullptr;
}

Status Arena::release(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    std::uint64_t size_bytes = 0;
    Step* const holder = holder_of(address, size_bytes);
    if (holder != nullptr) return holder->give_back(address);
    return fail(Status::NotExist, "0x%" PRIx64 " is not the start of memory from trans_malloc", address);
}

}  // namespace memfabric
