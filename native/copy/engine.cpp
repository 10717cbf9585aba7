// SPDX-License-Identifier: Apache-2.0
#include "copy/engine.h"

#include <algorithm>
#include <new>

#include "base/cpu.h"
#include "copy/job.h"
#include "copy/worker_pool.h"

namespace memfabric {
namespace {

// Memory is saturated by few cores; the others belong to the program.
constexpr unsigned kDefaultThreadLimit = 4;
// Waking a sleeping worker costs the caller a system call (some 5 us) and brings help only 50 to 100 us later; smaller
// copies are over by then. Workers still awake from the previous copy help from kDirectLimitBytes on.
constexpr std::size_t kWakeFromBytes = 1024 * 1024;
// Rows from this width on are parallel copies of their own.
constexpr std::size_t kWideRowBytes = 4 * 1024 * 1024;

}  // namespace

CopyEngine& CopyEngine::process() {
    static CopyEngine& engine = *[] {
        hold_across_forks<CopyEngine>();
        return new CopyEngine;
    }();
    return engine;
}

CopyEngine::CopyEngine() = default;
CopyEngine::~CopyEngine() = default;

void CopyEngine::copy_large(std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept {
    const Piece piece{target, source, size_bytes};
    copy_pieces({&piece, 1}, size_bytes);
}

void CopyEngine::copy_batch(std::span<const Piece> pieces) noexcept {
    std::size_t total_bytes = 0;
    for (const Piece& piece : pieces) total_bytes += piece.size_bytes;
    if (total_bytes <= kDirectLimitBytes) {
        for (const Piece& piece : pieces) copy(piece.target, piece.source, piece.size_bytes);
    } else {
        copy_pieces(pieces, total_bytes);
    }
}

void CopyEngine::copy_pieces(std::span<const Piece> pieces, std::size_t total_bytes) noexcept {
    const BatchJob job(pieces, total_bytes);
    share(job, total_bytes);
}

void CopyEngine::copy_2d(std::byte* target, std::size_t target_pitch, const std::byte* source, std::size_t source_pitch,
                         std::size_t width, std::size_t height) noexcept {
    if (width == 0 || height == 0) return;
    if (height == 1 || (target_pitch == width && source_pitch == width)) return copy(target, source, width * height);
    const std::size_t span_bytes = std::max(target_pitch, source_pitch) * height;
    const bool ordered = overlap(target, source, span_bytes);
    const std::size_t total_bytes = width * height;
    if (!ordered && width < kWideRowBytes && total_bytes > kDirectLimitBytes) {
        const RowsJob job({target, target_pitch, source, source_pitch, width, height});
        return share(job, total_bytes);
    }
    // As memmove does: away from the end that would overwrite rows not read yet.
    const bool backwards = ordered && target > source;
    for (std::size_t i = 0; i < height; ++i) {
        const std::size_t row = backwards ? height - 1 - i : i;
        copy(target + row * target_pitch, source + row * source_pitch, width);
    }
}

void CopyEngine::share(const ChunkedJob& job, std::size_t total_bytes) noexcept {
    const std::unique_lock<std::mutex> ownership(owner_, std::try_to_lock);
    if (job.chunk_count() > 1 && ownership.owns_lock() && start_pool()) {
        const auto wake = total_bytes >= kWakeFromBytes ? WorkerPool::Wake::kSleepers : WorkerPool::Wake::kNobody;
        pool_->run(job, wake);
    } else {
        for (std::uint32_t chunk = 0; chunk < job.chunk_count(); ++chunk) job.run_chunk(chunk);
    }
}

// Called with owner_ held. False when the calling thread has to do everything itself.
bool CopyEngine::start_pool() noexcept {
    if (pool_ != nullptr) return true;
    if (alone_) return false;
    const unsigned threads = thread_limit_ != 0 ? thread_limit_ : std::min(usable_cores(), kDefaultThreadLimit);
    if (threads > 1) pool_.reset(new (std::nothrow) WorkerPool(threads - 1));
    alone_ = pool_ == nullptr;
    return !alone_;
}

void CopyEngine::set_thread_limit(unsigned threads) {
    const std::lock_guard<std::mutex> ownership(owner_);
    thread_limit_ = threads;
    pool_.reset();
    alone_ = false;
}

void CopyEngine::shut_down() {
    const std::lock_guard<std::mutex> ownership(owner_);
    pool_.reset();
    alone_ = true;
}

// Runs in the child of a fork, with owner_ locked by the thread that forked, which is the only thread left.
void CopyEngine::begin_in_child() {
    if (pool_ != nullptr) alone_ = true;
    // Given up, not destroyed: its threads are the parent's and cannot be joined here.
    static_cast<void>(pool_.release());
    owner_.unlock();
}

}  // namespace memfabric
