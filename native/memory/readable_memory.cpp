// SPDX-License-Identifier: Apache-2.0
#include "memory/readable_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "base/last_error.h"

namespace memfabric {
namespace {

enum class Readable : std::uint8_t { Yes, No, Unknown };

// Asks the kernel for one byte of ours: an answer instead of a signal, also for pages that only look readable.
// Emulators and some containers give none.
Readable has_byte(std::uint64_t address) {
    char byte;
    const iovec local{&byte, 1};
    const iovec own{reinterpret_cast<void*>(address), 1};
    if (process_vm_readv(getpid(), &local, 1, &own, 1, 0) == 1) return Readable::Yes;
    return errno == ENOSYS || errno == EPERM ? Readable::Unknown : Readable::No;
}

}  // namespace

Status ReadableMemory::covers(std::uint64_t start, std::uint64_t size_bytes, bool& answer) {
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t last = start + size_bytes - 1;
    const Readable at_start = has_byte(start);
    const Readable at_end = has_byte(last);
    answer = at_start != Readable::No && at_end != Readable::No;
    if (!answer) return Status::Ok;
    const bool asked_all = last / page_bytes - start / page_bytes < 2;
    if (access_ == Access::Read && asked_all && at_start == Readable::Yes && at_end == Readable::Yes) return Status::Ok;
    if (const Status status = look(); status != Status::Ok) return status;
    const auto after = std::ranges::upper_bound(ranges_, start, {}, &Range::start);
    answer = after != ranges_.begin() && (after - 1)->end > last;
    return Status::Ok;
}

Status ReadableMemory::look() {
    if (looked_) return Status::Ok;
    std::ifstream maps("/proc/self/maps");
    if (!maps) {
        return fail(Status::NoResources, "cannot look at this process's own memory (/proc/self/maps): %s",
                    std::strerror(errno));
    }
    looked_ = true;
    for (std::string line; std::getline(maps, line);) {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
        char readable = '-';
        char writable = '-';
        if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %c%c", &start, &end, &readable, &writable) != 4) {
            continue;
        }
        if (readable != 'r' || (access_ == Access::ReadAndWrite && writable != 'w')) continue;
        if (!ranges_.empty() && ranges_.back().end == start) {
            ranges_.back().end = end;
        } else {
            ranges_.push_back({start, end});
        }
    }
    return Status::Ok;
}

}  // namespace memfabric
