// SPDX-License-Identifier: Apache-2.0
//
// Large copies cut into chunks that any thread may do in any order. A job lives on the stack of the thread that asked
// for the copy and only reads what it was given.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "copy/engine.h"

namespace memfabric {

// Work cut into chunks 0 ... chunk_count() - 1, each to be run once, in any order, on any thread, several at a time.
// What a chunk stored is visible to whoever acquires a flag that the running thread releases afterwards.
class ChunkedJob {
public:
    virtual std::uint32_t chunk_count() const noexcept = 0;
    virtual void run_chunk(std::uint32_t chunk) const noexcept = 0;

protected:
    ~ChunkedJob() = default;
};

// A batch cut into chunks of about equal bytes, whatever the sizes of its pieces: large pieces are split, small ones
// grouped. Lives on the stack of the thread that asked for the batch.

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

// True when moving size_bytes from source to target must respect an order.
bool overlap(const std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept;

// A batch in chunks of about equal bytes.
class BatchJob final : public ChunkedJob {
public:
    BatchJob(std::span<const Piece> pieces, std::size_t total_bytes) noexcept;

    std::uint32_t chunk_count() const noexcept override { return marks_.chunk_count(); }
    void run_chunk(std::uint32_t chunk) const noexcept override;

private:
    void copy_between(ChunkMarks::Mark from, ChunkMarks::Mark to) const noexcept;

    std::span<const Piece> pieces_;
    bool streaming_;
    ChunkMarks marks_;
};

// Rows of equal width that do not overlap, in chunks of equal numbers of rows.
class RowsJob final : public ChunkedJob {
public:
    struct Plane {
        std::byte* target;
        std::size_t target_pitch;
        const std::byte* source;
        std::size_t source_pitch;
        std::size_t width;
        std::size_t height;
    };

    explicit RowsJob(const Plane& plane) noexcept;

    std::uint32_t chunk_count() const noexcept override { return chunk_count_; }
    void run_chunk(std::uint32_t chunk) const noexcept override;

private:
    Plane plane_;
    bool streaming_;
    std::size_t rows_per_chunk_;
    std::uint32_t chunk_count_;
};

}  // namespace memfabric
