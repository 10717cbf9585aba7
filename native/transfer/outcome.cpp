// SPDX-License-Identifier: Apache-2.0
#include "transfer/outcome.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/last_error.h"
#include "transfer/piece_sides.h"

namespace memfabric {

Status explain_range(const Peer& peer, Direction direction, const Piece& piece) {
    if (piece.size_bytes == 0) {
        return fail(Status::InvalidParam, "session %s: a length is 0, expected at least 1 byte", peer.session.c_str());
    }
    if (local_of(direction, piece) == 0) {
        return fail(Status::InvalidParam, "session %s: a buffer address of this process is 0", peer.session.c_str());
    }
    return fail(Status::InvalidParam,
                "session %s: %zu bytes at 0x%" PRIx64
                " are not all inside memory that is registered there now; nothing was transferred",
                peer.session.c_str(), piece.size_bytes, remote_of(direction, piece));
}

Status explain_death(const Peer& peer, std::size_t moved_bytes, std::size_t total_bytes) {
    if (moved_bytes == 0 || moved_bytes == total_bytes) {
        return fail(Status::NotConnected, "session %s: its process (%d) has ended", peer.session.c_str(),
                    static_cast<int>(peer.process.pid));
    }
    return fail(Status::PartialFailed,
                "session %s: its process (%d) ended during the transfer; %zu of %zu bytes were moved",
                peer.session.c_str(), static_cast<int>(peer.process.pid), moved_bytes, total_bytes);
}

Status explain_error(const Peer& peer, Direction direction, std::span<const Piece> pieces, const Moved& moved,
                     std::size_t total_bytes) {
    if (moved.error == ESRCH) return explain_death(peer, moved.size_bytes, total_bytes);
    const Status nothing_or_part = moved.size_bytes == 0 ? Status::InvalidParam : Status::PartialFailed;
    if (moved.error == EFAULT) {
        const bool ours = !own_side_is_accessible(direction, pieces);
        return fail(nothing_or_part, "session %s: %s; %zu of %zu bytes were moved", peer.session.c_str(),
                    ours ? "a buffer of this process is not mapped, or not for this direction"
                         : "memory that is registered there is not mapped any more, or not for this direction; "
                           "unregister before freeing",
                    moved.size_bytes, total_bytes);
    }
    if (moved.error == EPERM && peer.segments.missed() != 0) {
        return fail(
            Status::NoResources,
            "session %s: this process had no descriptor left when memory of process %d was shown to it, and the "
            "kernel does not let it in otherwise; raise the limit of open files (ulimit -n) and restart the "
            "engine",
            peer.session.c_str(), static_cast<int>(peer.process.pid));
    }
    if (moved.error == EPERM) {
        return fail(Status::NotConnected,
                    "session %s: the kernel does not let this process into process %d; run both as one user, allow it "
                    "(kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE in a container), or use memory of trans_malloc or "
                    "of a pool, which needs no permission",
                    peer.session.c_str(), static_cast<int>(peer.process.pid));
    }
    return fail(moved.size_bytes == 0 ? Status::Error : Status::PartialFailed,
                "session %s: the kernel refuses the transfer with process %d: %s; %zu of %zu bytes were moved",
                peer.session.c_str(), static_cast<int>(peer.process.pid), std::strerror(moved.error), moved.size_bytes,
                total_bytes);
}

}  // namespace memfabric
