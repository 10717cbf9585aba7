// SPDX-License-Identifier: Apache-2.0
#include "memory/reservation.h"

#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/last_error.h"

namespace memfabric {
namespace {

constexpr int kEmpty = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

// What /proc/self/maps says about the first mapping inside the range, e.g. "7f00-7f10 (/usr/lib/libc.so.6)".
std::string mapping_in(std::uintptr_t base, std::size_t size_bytes) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t start = 0;
        std::uintptr_t end = 0;
        int path_at = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &start, &end, &path_at) < 2)
            continue;
        if (end <= base || start >= base + size_bytes) continue;
        const std::string path = path_at > 0 ? line.substr(static_cast<std::size_t>(path_at)) : "";
        char text[64];
        std::snprintf(text, sizeof text, "0x%" PRIxPTR "-0x%" PRIxPTR, start, end);
        return std::string(text) + " (" + (path.empty() ? "anonymous memory" : path) + ")";
    }
    return "a mapping that has gone meanwhile";
}

}  // namespace

Status Reservation::make(std::uintptr_t base, std::size_t size_bytes, const std::string& owner,
                         std::unique_ptr<Reservation>& made) {
    void* got = mmap(pointer(base), size_bytes, PROT_NONE, kEmpty | MAP_FIXED_NOREPLACE, -1, 0);
    int error = errno;
    if (got != MAP_FAILED && got != pointer(base)) {
        munmap(got, size_bytes);  // a kernel before 4.17 takes the address for a mere hint
        got = MAP_FAILED;
        error = EEXIST;
    }
    if (got == MAP_FAILED && error == EEXIST) {
        return fail(Status::MallocFailed,
                    "%s: the address range 0x%" PRIxPTR "-0x%" PRIxPTR
                    " is taken in this process by %s; remove that mapping",
                    owner.c_str(), base, base + size_bytes, mapping_in(base, size_bytes).c_str());
    }
    if (got == MAP_FAILED) {
        return fail(Status::MallocFailed,
                    "%s: cannot reserve %zu bytes of addresses at 0x%" PRIxPTR ": %s; check 'ulimit -v'", owner.c_str(),
                    size_bytes, base, std::strerror(error));
    }
    made.reset(new Reservation(base, size_bytes, owner));
    return Status::Ok;
}

Reservation::~Reservation() { munmap(pointer(base_), size_bytes_); }

Status Reservation::map(std::uintptr_t address, std::size_t size_bytes, int fd, std::uint64_t fd_offset) {
    void* got = mmap(pointer(address), size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                     static_cast<off_t>(fd_offset));
    if (got == MAP_FAILED) {
        return fail(errno == ENOMEM ? Status::MallocFailed : Status::InvalidParam,
                    "%s: cannot map %zu bytes of file descriptor %d from offset %" PRIu64 " at 0x%" PRIxPTR ": %s",
                    owner_.c_str(), size_bytes, fd, fd_offset, address, std::strerror(errno));
    }
    madvise(got, size_bytes, MADV_HUGEPAGE);  // a wish: most kernels do not grant it for shared memory
    return Status::Ok;
}

void Reservation::unmap(std::uintptr_t address, std::size_t size_bytes) {
    if (size_bytes == 0) return;
    if (mmap(pointer(address), size_bytes, PROT_NONE, kEmpty | MAP_FIXED, -1, 0) == MAP_FAILED) {
        // Only ENOMEM is possible: too many mappings to split one more. The memory stays; nobody is sent there.
        madvise(pointer(address), size_bytes, MADV_DONTNEED);
    }
}

}  // namespace memfabric
