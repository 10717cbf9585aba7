// SPDX-License-Identifier: Apache-2.0
//
// Moves bytes between this process and another one of this host with process_vm_readv and process_vm_writev. The other
// process needs to do nothing; it may even be stopped. The kernel asks for the right to debug it (ptrace).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "copy/engine.h"

namespace memfabric {

enum class Direction : std::uint8_t { Read, Write };  // seen from this process

// A process as transfers know it. A pid alone may belong to somebody else by now, so `life` tells whether it still
// means the process we met: it has a thread's id in its low 30 bits until the kernel wipes them at the process's death.
struct PeerProcess {
    pid_t pid = 0;
    const std::atomic<std::uint32_t>* life = nullptr;

    bool alive() const { return (life->load(std::memory_order_acquire) & kHolderMask) != 0; }

    static constexpr std::uint32_t kHolderMask = 0x3fffffff;
};

struct Moved {
    std::size_t size_bytes = 0;
    int error = 0;  // errno of the first system call that failed; ESRCH also for a process that died meanwhile
};

// Pieces are independent of each other. For a Write the targets are the other process's addresses, for a Read the
// sources are. Budget of one small piece: two loads and one system call. Large requests are shared with the copy
// engine's worker threads.
Moved move_pieces(const PeerProcess& peer, Direction direction, std::span<const Piece> pieces,
                  std::size_t total_bytes) noexcept;

// Whether this process itself can read (or, for a Read, write) its own side of the pieces; false means that EFAULT was
// the caller's doing.
bool own_side_is_accessible(Direction direction, std::span<const Piece> pieces) noexcept;

}  // namespace memfabric
