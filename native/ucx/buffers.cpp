// SPDX-License-Identifier: Apache-2.0
#include "ucx/buffers.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; wheels are compiled with older headers
#endif

namespace memfabric::ucx {
namespace {

std::uint64_t page_bytes() {
    static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

// Asks the kernel for single bytes of ours, many at a time. Where it gives none to anybody, everything is readable.
class ReadProbe {
public:
    // False: one of those since the last answer is not there.
    bool add(std::uint64_t address) {
        own_[count_++] = {reinterpret_cast<void*>(address), 1};
        return count_ < own_.size() || ask();
    }
    bool ask() {
        if (count_ == 0) return true;
        const iovec local{bytes_.data(), count_};
        const ssize_t got = process_vm_readv(getpid(), &local, 1, own_.data(), count_, 0);
        const bool all = got == static_cast<ssize_t>(count_) || (got < 0 && errno != EFAULT);
        count_ = 0;
        return all;
    }

private:
    std::array<iovec, 256> own_;
    std::array<std::byte, 256> bytes_;
    std::size_t count_ = 0;
};

bool are_readable(const Move& move) {
    ReadProbe probe;
    for (const Piece& piece : move.pieces) {
        const std::uint64_t start = local_of(move.direction, piece);
        const std::uint64_t end = start + piece.size_bytes;
        if (end < start) return false;
        for (std::uint64_t at = start; at < end; at = (at / page_bytes() + 1) * page_bytes()) {
            if (!probe.add(at)) return false;
        }
    }
    return probe.ask();
}

enum class Writable { Yes, No, Unknown };

Writable is_writable(std::uint64_t start, std::uint64_t size_bytes) {
    const std::uint64_t first = start / page_bytes() * page_bytes();
    const std::uint64_t end = start + size_bytes;
    if (end < start) return Writable::No;
    if (madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE) == 0) return Writable::Yes;
    return errno == EINVAL || errno == ENOSYS ? Writable::Unknown : Writable::No;
}

}  // namespace

bool buffers_are_accessible(const Move& move) {
    if (move.direction == Direction::Write) return are_readable(move);
    for (const Piece& piece : move.pieces) {
        switch (is_writable(local_of(move.direction, piece), piece.size_bytes)) {
            case Writable::Yes:
                break;
            case Writable::No:
                return false;
            case Writable::Unknown:  // a kernel before 5.14: at least that it is there
                return are_readable(move);
        }
    }
    return true;
}

}  // namespace memfabric::ucx
