// SPDX-License-Identifier: Apache-2.0
#include "memory/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>
#include <utility>

#include "base/last_error.h"
#include "memory/machine_memory.h"
#include "memory/process_limits.h"

namespace memfabric {
namespace {

// Reserved addresses that start at a huge page, so that the kernel can use such pages; nullptr: anywhere will do.
void* find_place(std::uint64_t size_bytes) {
    if (size_bytes < kHugePageBytes) return nullptr;
    const std::uint64_t reserved_bytes = size_bytes + kHugePageBytes;
    void* reserved = mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return nullptr;
    const auto start = reinterpret_cast<std::uintptr_t>(reserved);
    const std::uintptr_t place = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    if (place != start) munmap(reserved, place - start);
    munmap(reinterpret_cast<void*>(place + size_bytes), start + reserved_bytes - place - size_bytes);
    return reinterpret_cast<void*>(place);
}

}  // namespace

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
    if (this != &other) {
        reset();
        address_ = std::exchange(other.address_, nullptr);
        size_bytes_ = std::exchange(other.size_bytes_, 0);
    }
    return *this;
}

Status SharedMapping::map(int fd, std::uint64_t size_bytes, bool writable, SharedMapping& made) {
    void* place = find_place(size_bytes);
    void* address = mmap(place, size_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                         MAP_SHARED | MAP_NORESERVE | (place != nullptr ? MAP_FIXED : 0), fd, 0);
    if (address == MAP_FAILED) {
        const int error = errno;
        if (place != nullptr) munmap(place, size_bytes);
        return fail(Status::MallocFailed, "cannot map %" PRIu64 " bytes of shared memory: %s%s", size_bytes,
                    std::strerror(error), limit_in_the_way(error).c_str());
    }
    made.reset();
    made.address_ = static_cast<std::byte*>(address);
    made.size_bytes_ = size_bytes;
    return Status::Ok;
}

void SharedMapping::reset() {
    if (address_ != nullptr) munmap(address_, size_bytes_);
    abandon();
}

void SharedMapping::abandon() {
    address_ = nullptr;
    size_bytes_ = 0;
}

Status make_memory_file(const char* name, std::uint64_t size_bytes, OwnedFd& made) {
    OwnedFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0 ||
        fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        const int error = errno;
        return fail(Status::MallocFailed, "cannot create a memory file of %" PRIu64 " bytes: %s%s", size_bytes,
                    std::strerror(error), limit_in_the_way(error).c_str());
    }
    made = std::move(fd);
    return Status::Ok;
}

Status forbid_writing(const OwnedFd& file, OwnedFd& shown) {
    constexpr int kFutureWrite = 0x0010;  // F_SEAL_FUTURE_WRITE, newer than some headers
    const bool sealed = fcntl(file.get(), F_ADD_SEALS, kFutureWrite | F_SEAL_SEAL) == 0;
    shown.reset(sealed ? fcntl(file.get(), F_DUPFD_CLOEXEC, kLowestOwnFd)
                       : open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
    if (shown) return Status::Ok;
    return fail(Status::NoResources, "cannot make a read-only descriptor: %s", std::strerror(errno));
}

bool cannot_shrink(int fd) {
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Status check_memory_file(int fd, std::uint64_t least_bytes) {
    struct stat status{};
    if (!cannot_shrink(fd) || fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < least_bytes) {
        return fail(Status::InvalidParam, "a descriptor that arrived is no sealed memory file of %" PRIu64 " bytes",
                    least_bytes);
    }
    return Status::Ok;
}

}  // namespace memfabric
