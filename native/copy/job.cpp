// SPDX-License-Identifier: Apache-2.0
#include "copy/job.h"

#include <algorithm>

#include "copy/kernels.h"

namespace memfabric {
namespace {

// Copies of this many bytes in total are streamed. On Zen 3 (32 MiB of last-level cache) against memcpy, one thread:
// 64 MiB 1.8 x, 122 scattered KV pieces (9 MiB) 1.5 x, 4096 x 4 KiB 1.2 x faster. 2 MiB are 1.6 x faster when cold but
// 1.3 x slower when source and target sit in the caches, and below that the reader profits from finding them there.
constexpr std::size_t kStreamFromBytes = 2 * 1024 * 1024;

// Claiming a chunk moves one cache line between cores, some 0.1 us: nothing beside the 5 us that this many bytes take.
constexpr std::size_t kSmallestChunkBytes = 64 * 1024;

constexpr std::size_t kPrefetchedLines = 8;

void copy_part(std::byte* target, const std::byte* source, std::size_t size_bytes, bool streaming) noexcept {
    static const StreamKernel& kernel = stream_kernels().front();
    if (size_bytes == 0) return;  // its addresses may be null
    if (streaming && !overlap(target, source, size_bytes)) {
        kernel.copy(target, source, size_bytes);
    } else {
        std::memmove(target, source, size_bytes);
    }
}

// Fetches the beginning of the piece after the current one: its pages are elsewhere, where the hardware prefetcher does
// not look, and on a virtual machine a missing translation costs two page-table walks. The one line of the target is
// fetched for its translation only. Made 4096 x 4 KiB 1.2 x faster, scattered larger pieces a few per cent.
void prefetch(const Piece& piece) noexcept {
    const std::size_t end = std::min(piece.size_bytes, kPrefetchedLines * kLineBytes);
    for (std::size_t offset = 0; offset < end; offset += kLineBytes) __builtin_prefetch(piece.source + offset, 0, 0);
    __builtin_prefetch(piece.target, 0, 0);
}

}  // namespace

bool overlap(const std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept {
    const auto to = reinterpret_cast<std::uintptr_t>(target);
    const auto from = reinterpret_cast<std::uintptr_t>(source);
    return (to < from ? from - to : to - from) < size_bytes;
}

BatchJob::BatchJob(std::span<const Piece> pieces, std::size_t total_bytes) noexcept
    : pieces_(pieces), streaming_(total_bytes >= kStreamFromBytes) {
    marks_.cut(pieces, total_bytes, kSmallestChunkBytes, [](const Piece& piece) {
        return overlap(piece.target, piece.source, piece.size_bytes);  // memmove needs it whole
    });
}

void BatchJob::copy_between(ChunkMarks::Mark from, ChunkMarks::Mark to) const noexcept {
    std::size_t offset = from.offset;
    for (std::size_t i = from.piece; i < to.piece; ++i) {
        const Piece& piece = pieces_[i];
        if (i + 1 < to.piece) prefetch(pieces_[i + 1]);
        copy_part(piece.target + offset, piece.source + offset, piece.size_bytes - offset, streaming_);
        offset = 0;
    }
    if (to.offset != 0) {
        const Piece& piece = pieces_[to.piece];
        copy_part(piece.target + offset, piece.source + offset, to.offset - offset, streaming_);
    }
}

void BatchJob::run_chunk(std::uint32_t chunk) const noexcept {
    copy_between(marks_[chunk], marks_[chunk + 1]);
    if (streaming_) stream_fence();
}

RowsJob::RowsJob(const Plane& plane) noexcept
    : plane_(plane),
      streaming_(plane.width * plane.height >= kStreamFromBytes),
      rows_per_chunk_(std::max(kSmallestChunkBytes / plane.width + 1, plane.height / kChunkLimit + 1)),
      chunk_count_(static_cast<std::uint32_t>((plane.height + rows_per_chunk_ - 1) / rows_per_chunk_)) {}

void RowsJob::run_chunk(std::uint32_t chunk) const noexcept {
    const std::size_t first = chunk * rows_per_chunk_;
    const std::size_t end = std::min(plane_.height, first + rows_per_chunk_);
    for (std::size_t row = first; row < end; ++row) {
        copy_part(plane_.target + row * plane_.target_pitch, plane_.source + row * plane_.source_pitch, plane_.width,
                  streaming_);
    }
    if (streaming_) stream_fence();
}

}  // namespace memfabric
