// SPDX-License-Identifier: Apache-2.0
//
// Moves bytes between addresses of this process: the one place that decides between memcpy, non-temporal stores and
// several threads. It knows nothing of regions, ranks or routes: whoever calls has already proved that both ranges are
// mapped and stay mapped until the call returns.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>

#include "base/api.h"
#include "base/fork_guard.h"

namespace memfabric {

class ChunkedJob;
class WorkerPool;

struct Piece {
    std::byte* target;
    const std::byte* source;
    std::size_t size_bytes;
};

// Thread contract: every method may be called from any thread at any time. Copies return when all bytes are in place
// and visible to whoever synchronises with the caller; they never throw, allocate on the short path, or hold a lock
// that another copy waits for. One large copy at a time uses the worker threads; others meanwhile copy alone.
class MF_API CopyEngine {
public:
    // The engine of this process. It is never destroyed, so copies stay legal while static destructors run; threads
    // start at the first large copy.
    static CopyEngine& process();

    CopyEngine();
    ~CopyEngine();
    CopyEngine(const CopyEngine&) = delete;
    CopyEngine& operator=(const CopyEngine&) = delete;

    // memmove semantics. Budget below kDirectLimitBytes: what memmove costs; no lock, no system call, no allocation.
    void copy(std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept {
        if (size_bytes <= kDirectLimitBytes) {
            if (size_bytes != 0) std::memmove(target, source, size_bytes);
            return;
        }
        copy_large(target, source, size_bytes);
    }

    // Pieces are independent of each other: no target may overlap another piece's source or target. Within one piece
    // source and target may overlap.
    void copy_batch(std::span<const Piece> pieces) noexcept;

    // Copies `height` rows of `width` bytes. Source and target may overlap when both pitches are equal.
    void copy_2d(std::byte* target, std::size_t target_pitch, const std::byte* source, std::size_t source_pitch,
                 std::size_t width, std::size_t height) noexcept;

    // Runs every chunk of the job, on the worker threads too if they are free and the `total_bytes` it moves are worth
    // it: for copies that this class does not know how to do, such as those into another process.
    void share(const ChunkedJob& job, std::size_t total_bytes) noexcept;

    // Threads a copy may use, the calling one included; 0 restores the default: usable cores, at most 4. Waits for the
    // copy that is using the workers, if any.
    void set_thread_limit(unsigned threads);

    // Joins the worker threads; later copies work on the calling thread alone, until set_thread_limit() is called. The
    // child of a fork starts in that state if its parent had workers: threads do not survive a fork.
    void shut_down();

    static constexpr std::size_t kDirectLimitBytes = 128 * 1024;

private:
    void copy_large(std::byte* target, const std::byte* source, std::size_t size_bytes) noexcept;
    void copy_pieces(std::span<const Piece> pieces, std::size_t total_bytes) noexcept;
    bool start_pool() noexcept;

    friend void hold_across_forks<CopyEngine>();
    void before_fork() { owner_.lock(); }
    void after_fork() { owner_.unlock(); }
    void begin_in_child();

    // Held during a copy that uses the workers (others only try), during changes of the fields below, and across
    // fork(), so that a child never inherits a half-done job.
    std::mutex owner_;
    unsigned thread_limit_ = 0;
    bool alone_ = false;  // no pool and none to be started: limit of one thread, shut down, or the child of a fork
    std::unique_ptr<WorkerPool> pool_;
};

}  // namespace memfabric
