// SPDX-License-Identifier: Apache-2.0
#include "ucx/buffers.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#ifndef MADV_POPULATE_READ  // Linux 5.14; wheels are compiled with older headers
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace memfabric::ucx {
namespace {

constexpr std::uint64_t kFewPages = 4;  // of one piece: asked for one by one

std::uint64_t page_bytes() {
    static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

// The kernel reads the mask before it looks at what is to be done with it, which is nothing.
bool is_readable(std::uint64_t address) {
    constexpr int kNothing = -1;
    constexpr std::uint64_t kMaskBytes = 8;
    const auto* mask = reinterpret_cast<const void*>(address / kMaskBytes * kMaskBytes);
    return syscall(SYS_rt_sigprocmask, kNothing, mask, nullptr, kMaskBytes) == 0 || errno != EFAULT;
}

enum class Access { Yes, No, Unknown };

// What the kernel says of all pages at once, which costs next to nothing where they are huge.
Access populated(std::uint64_t start, std::uint64_t size_bytes, int advice) {
    static const bool has_advice = [] {
        const auto here = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0)) / page_bytes() * page_bytes();
        return madvise(reinterpret_cast<void*>(here), page_bytes(), MADV_POPULATE_WRITE) == 0;
    }();
    if (!has_advice) return Access::Unknown;
    const std::uint64_t first = start / page_bytes() * page_bytes();
    const std::uint64_t end = start + size_bytes;
    if (end < start) return Access::No;
    return madvise(reinterpret_cast<void*>(first), end - first, advice) == 0 ? Access::Yes : Access::No;
}

bool are_readable(const Move& move) {
    for (const Piece& piece : move.pieces) {
        const std::uint64_t start = local_of(move.direction, piece);
        const std::uint64_t end = start + piece.size_bytes;
        if (end < start) return false;
        if (piece.size_bytes >= kFewPages * page_bytes()) {
            const Access access = populated(start, piece.size_bytes, MADV_POPULATE_READ);
            if (access == Access::No) return false;
            if (access == Access::Yes) continue;
        }
        for (std::uint64_t at = start; at < end; at = (at / page_bytes() + 1) * page_bytes()) {
            if (!is_readable(at)) return false;
        }
    }
    return true;
}

}  // namespace

bool buffers_are_accessible(const Move& move) {
    if (move.direction == Direction::Write) return are_readable(move);
    for (const Piece& piece : move.pieces) {
        switch (populated(local_of(move.direction, piece), piece.size_bytes, MADV_POPULATE_WRITE)) {
            case Access::Yes:
                break;
            case Access::No:
                return false;
            case Access::Unknown:  // a kernel before 5.14: at least that it is there
                return are_readable(move);
        }
    }
    return true;
}

}  // namespace memfabric::ucx
