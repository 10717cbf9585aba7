// SPDX-License-Identifier: Apache-2.0
//
// What became of a transfer: its code, and the sentence of a failure.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "transfer/peers.h"
#include "transports/transport.h"

namespace memfabric {

// Why the piece may not be transferred.
[[gnu::cold]] Status explain_range(const Peer& peer, Direction direction, const Piece& piece);

// The same of a piece of the move; names it, if there are several.
[[gnu::cold]] Status explain_range(const Peer& peer, const Move& move, std::size_t index);
// Names the piece that a sentence is about, if there are several.
[[gnu::cold]] Status about_one(Status status, std::size_t index, std::span<const Piece> pieces);

// Names the pieces that reach into what the peer has refused, if there are several in the move.
[[gnu::cold]] Status about_refused(Status status, const RemoteExtent& refused, const Move& move);

// PartialFailed where memory that somebody has may have been changed: then all targets are undefined.
[[gnu::cold]] Status explain_failure(const Peer& peer, Direction direction, const Outcome& outcome,
                                     std::size_t total_bytes);

// Success needs a peer that was there all the time.
inline Status conclude(const Peer& peer, Direction direction, const Outcome& outcome, std::size_t total_bytes) {
    if (outcome.status == Status::Ok && peer.usable()) [[likely]]
        return Status::Ok;
    return explain_failure(peer, direction, outcome, total_bytes);
}

}  // namespace memfabric
