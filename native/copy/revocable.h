// SPDX-License-Identifier: Apache-2.0
//
// Moves a request in chunks, so that nobody waits long for a copy to notice that its memory is being taken away.
// After each chunk, the last one too, `may_go_on()` is asked. Its failure ends the copy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "copy/engine.h"
#include "copy/request.h"

namespace memfabric {

inline constexpr std::size_t kChunkBytes = std::size_t{32} << 20;

// All of it at once, for what is no longer than a chunk.
inline void move(CopyEngine& engine, const Piece& piece) { engine.copy(piece.target, piece.source, piece.size_bytes); }
inline void move(CopyEngine& engine, const std::vector<Piece>& pieces) { engine.copy_batch(pieces); }
inline void move(CopyEngine& engine, const Rectangle& rectangle) {
    engine.copy_2d(rectangle.target, rectangle.target_pitch_bytes, rectangle.source, rectangle.source_pitch_bytes,
                   rectangle.width_bytes, rectangle.height);
}

template <typename MayGoOn>
Status move_chunked(CopyEngine& engine, const Piece& piece, MayGoOn may_go_on) {
    // A piece that moves upwards onto itself is taken from its end, as memmove would.
    const bool from_end = piece.target > piece.source && piece.target < piece.source + piece.size_bytes;
    for (std::size_t left = piece.size_bytes; left > 0;) {
        const std::size_t size_bytes = std::min(kChunkBytes, left);
        const std::size_t offset = from_end ? left - size_bytes : piece.size_bytes - left;
        engine.copy(piece.target + offset, piece.source + offset, size_bytes);
        left -= size_bytes;
        if (const Status status = may_go_on(); status != Status::Ok) return status;
    }
    return Status::Ok;
}

template <typename MayGoOn>
Status move_chunked(CopyEngine& engine, const std::vector<Piece>& pieces, MayGoOn may_go_on) {
    for (auto first = pieces.begin(); first != pieces.end();) {
        std::size_t chunk_bytes = first->size_bytes;
        auto last = first + 1;
        while (last != pieces.end() && last->size_bytes <= kChunkBytes &&
               chunk_bytes + last->size_bytes <= kChunkBytes) {
            chunk_bytes += (last++)->size_bytes;
        }
        if (chunk_bytes > kChunkBytes) {  // one large piece
            if (const Status status = move_chunked(engine, *first, may_go_on); status != Status::Ok) return status;
        } else {
            engine.copy_batch(std::span(first, last));
            if (const Status status = may_go_on(); status != Status::Ok) return status;
        }
        first = last;
    }
    return Status::Ok;
}

template <typename MayGoOn>
Status move_chunked(CopyEngine& engine, const Rectangle& rectangle, MayGoOn may_go_on) {
    const std::size_t rows_per_chunk = std::max<std::size_t>(1, kChunkBytes / rectangle.width_bytes);
    // Rows that move upwards may lie on rows not read yet: they are taken from the last one, as memmove would.
    const bool from_end = rectangle.target > rectangle.source;
    for (std::size_t left = rectangle.height; left > 0;) {
        const std::size_t rows = std::min(rows_per_chunk, left);
        const std::size_t row = from_end ? left - rows : rectangle.height - left;
        left -= rows;
        std::byte* target = rectangle.target + row * rectangle.target_pitch_bytes;
        const std::byte* source = rectangle.source + row * rectangle.source_pitch_bytes;
        if (rectangle.width_bytes > kChunkBytes) {
            const Status status = move_chunked(engine, Piece{target, source, rectangle.width_bytes}, may_go_on);
            if (status != Status::Ok) return status;
            continue;
        }
        engine.copy_2d(target, rectangle.target_pitch_bytes, source, rectangle.source_pitch_bytes,
                       rectangle.width_bytes, rows);
        if (const Status status = may_go_on(); status != Status::Ok) return status;
    }
    return Status::Ok;
}

}  // namespace memfabric
