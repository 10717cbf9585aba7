// SPDX-License-Identifier: Apache-2.0
//
// What became of a transfer: its code, and the sentence of a failure.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "transfer/peers.h"
#include "transports/peer_process.h"

namespace memfabric {

// Why the piece may not be transferred.
[[gnu::cold]] Status explain_range(const Peer& peer, Direction direction, const Piece& piece);

// `pieces` are those that went through the kernel.
[[gnu::cold]] Status explain_error(const Peer& peer, Direction direction, std::span<const Piece> pieces,
                                   const Moved& moved, std::size_t total_bytes);
[[gnu::cold]] Status explain_death(const Peer& peer, std::size_t moved_bytes, std::size_t total_bytes);

// Success needs a peer that was there all the time.
inline Status conclude(const Peer& peer, Direction direction, std::span<const Piece> pieces, const Moved& moved,
                       std::size_t total_bytes) {
    if (moved.error != 0) [[unlikely]]
        return explain_error(peer, direction, pieces, moved, total_bytes);
    if (!peer.usable()) [[unlikely]]
        return explain_death(peer, moved.size_bytes, total_bytes);
    return Status::Ok;
}

}  // namespace memfabric
