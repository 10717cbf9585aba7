// SPDX-License-Identifier: Apache-2.0
//
// A piece has a side of ours and a side of the peer's; which is source and which is target depends on the direction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "copy/engine.h"
#include "copy/request.h"
#include "transports/peer_process.h"

namespace memfabric {

inline Piece piece_of(Direction direction, std::uint64_t buffer, std::uint64_t peer_buffer, std::uint64_t size_bytes) {
    const bool write = direction == Direction::Write;
    return {reinterpret_cast<std::byte*>(write ? peer_buffer : buffer),
            reinterpret_cast<const std::byte*>(write ? buffer : peer_buffer), size_bytes};
}

inline std::uint64_t remote_of(Direction direction, const Piece& piece) {
    return reinterpret_cast<std::uint64_t>(direction == Direction::Write ? piece.target : piece.source);
}

inline std::uint64_t local_of(Direction direction, const Piece& piece) {
    return reinterpret_cast<std::uint64_t>(direction == Direction::Write ? piece.source : piece.target);
}

inline Extent local_extent(Direction direction, const Piece& piece) {
    return {local_of(direction, piece), piece.size_bytes};
}

// The same piece with the peer's side at its place in our own mapping of its memory.
inline Piece mapped(Direction direction, const Piece& piece, std::byte* remote) {
    return direction == Direction::Write ? Piece{remote, piece.source, piece.size_bytes}
                                         : Piece{piece.target, remote, piece.size_bytes};
}

}  // namespace memfabric
