// SPDX-License-Identifier: Apache-2.0
//
// A batch cut into chunks of about equal bytes, whatever the sizes of its pieces: large pieces are split, small ones
// grouped. Lives on the stack of the thread that asked for the batch.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "copy/engine.h"

namespace memfabric {

// Chunks of one job: enough to balance threads, few enough for the marks to live on the stack.
inline constexpr std::size_t kChunkLimit = 256;

class ChunkMarks {
public:
    struct Mark {
        std::size_t piece;
        std::size_t offset;
    };

    // Chunk i is what lies between marks i and i + 1.
    std::uint32_t chunk_count() const { return chunk_count_; }
    Mark operator[](std::uint32_t index) const { return marks_[index]; }

    // Pieces that `keep_whole(piece)` holds for are not split.
    template <typename KeepWhole>
    void cut(std::span<const Piece> pieces, std::size_t total_bytes, std::size_t smallest_bytes,
             KeepWhole keep_whole) noexcept {
        const std::size_t chunk_bytes = std::max(smallest_bytes, total_bytes / kChunkLimit + 1);
        marks_[0] = {0, 0};
        std::size_t room_bytes = chunk_bytes;
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const Piece& piece = pieces[i];
            if (room_bytes == 0) {
                marks_[++chunk_count_] = {i, 0};
                room_bytes = chunk_bytes;
            }
            if (keep_whole(piece)) {
                room_bytes -= std::min(room_bytes, piece.size_bytes);
                continue;
            }
            std::size_t offset = 0;
            while (piece.size_bytes - offset > room_bytes) {
                offset += room_bytes;
                marks_[++chunk_count_] = {i, offset};
                room_bytes = chunk_bytes;
            }
            room_bytes -= piece.size_bytes - offset;
        }
        marks_[++chunk_count_] = {pieces.size(), 0};
    }

private:
    std::uint32_t chunk_count_ = 0;
    std::array<Mark, kChunkLimit + 1> marks_;
};

}  // namespace memfabric
