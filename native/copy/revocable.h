// SPDX-License-Identifier: Apache-2.0
//
// Moves a request in chunks, so that nobody waits long for a copy to notice that its memory is being taken away.
// After each chunk `may_go_on(more)` is asked; `more` says whether bytes are left. Its failure ends the copy.
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

template <typename MayGoOn>
Status move_chunked(CopyEngine& engine, const Piece& piece, MayGoOn may_go_on) {
    if (piece.size_bytes <= kChunkBytes) [[likely]] {
        engine.copy(piece.target, piece.source, piece.size_bytes);
        return may_go_on(false);
    }
    // A piece that moves upwards onto itself is taken from its end, as memmove would.
    const bool from_end = piece.target > piece.source && piece.target < piece.source + piece.size_bytes;
    for (std::size_t left = piece.size_bytes; left > 0;) {
        const std::size_t size_bytes = std::min(kChunkBytes, left);
        const std::size_t offset = from_end ? left - size_bytes : piece.size_bytes - left;
        engine.copy(piece.target + offset, piece.source + offset, size_bytes);
        left -= size_bytes;
        if (const Status status = may_go_on(left > 0); status != Status::Ok) return status;
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
        const bool more = last != pieces.end();
        if (chunk_bytes > kChunkBytes) {  // one large piece
            const auto inside = [&](bool more_of_piece) { return may_go_on(more_of_piece || more); };
            if (const Status status = move_chunked(engine, *first, inside); status != Status::Ok) return status;
        } else {
            engine.copy_batch(std::span(first, last));
            if (const Status status = may_go_on(more); status != Status::Ok) return status;
        }
        first = last;
    }
    return Status::Ok;
}

template <typename MayGoOn>
Status move_chunked(CopyEngine& engine, const Rectangle& rectangle, MayGoOn may_go_on) {
    if (rectangle.height <= kChunkBytes / rectangle.width_bytes) [[likely]] {
        engine.copy_2d(rectangle.target, rectangle.target_pitch_bytes, rectangle.source, rectangle.source_pitch_bytes,
                       rectangle.width_bytes, rectangle.height);
        return may_go_on(false);
    }
    const std::size_t rows_per_chunk = std::max<std::size_t>(1, kChunkBytes / rectangle.width_bytes);
    // Rows that move upwards may lie on rows not read yet: they are taken from the last one, as memmove would.
    const bool from_end = rectangle.target > rectangle.source;
    for (std::size_t left = rectangle.height; left > 0;) {
        const std::size_t rows = std::min(rows_per_chunk, left);
        const std::size_t row = from_end ? left - rows : rectangle.height - left;
        left -= rows;
        const bool more = left > 0;
        std::byte* target = rectangle.target + row * rectangle.target_pitch_bytes;
        const std::byte* source = rectangle.source + row * rectangle.source_pitch_bytes;
        if (rectangle.width_bytes > kChunkBytes) {
            const auto inside = [&](bool more_of_row) { return may_go_on(more_of_row || more); };
            const Status status = move_chunked(engine, Piece{target, source, rectangle.width_bytes}, inside);
            if (status != Status::Ok) return status;
            continue;
        }
        engine.copy_2d(target, rectangle.target_pitch_bytes, source, rectangle.source_pitch_bytes,
                       rectangle.width_bytes, rows);
        if (const Status status = may_go_on(more); status != Status::Ok) return status;
    }
    return Status::Ok;
}

}  // namespace memfabric
