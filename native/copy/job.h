// SPDX-License-Identifier: Apache-2.0
//
// Large copies cut into chunks that any thread may do in any order. A job lives on the stack of the thread that asked
// for the copy and only reads what it was given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "copy/chunk_marks.h"
#include "copy/chunked_job.h"
#include "copy/engine.h"

namespace memfabric {

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
