// SPDX-License-Identifier: Apache-2.0
//
// Threads that help one caller at a time with a job cut into chunks. The pool knows nothing about copying.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "copy/job.h"

namespace memfabric {

// Chunks are claimed one by one from a shared counter, by the caller as well: a worker that wakes late or never costs
// nothing, the caller has then done the chunks itself. The caller waits only for chunks that a worker is working on.
//
// Thread contract: run() is called by one thread at a time (the owner of the pool sees to that). Workers take all
// signals blocked, touch a job only between claiming and completing one of its chunks, and join in the destructor.
class WorkerPool {
public:
    enum class Wake { kSleepers, kNobody };

    // Starts as many workers as the system lets it, at most `workers`.
    explicit WorkerPool(unsigned workers);
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    // Runs every chunk of the job (at most 65535) once, on this thread and on workers; returns when all are complete.
    // Workers that are still spinning after their last job always join in; sleeping ones are woken only on request,
    // since that costs a system call here and takes 50 to 100 us there.
    void run(const ChunkedJob& job, Wake wake) noexcept;

private:
    void serve(unsigned index) noexcept;
    bool work_on_one_chunk() noexcept;
    bool wait_for_work() noexcept;

    // Written by run() before it publishes claims_, stable while a chunk of that job is incomplete.
    const ChunkedJob* job_ = nullptr;

    // One word, so that a claim is one compare-and-swap: generation << 32 | chunk count << 16 | next chunk. The
    // generation makes a claim prepared for an earlier job fail.
    alignas(64) std::atomic<std::uint64_t> claims_{0};
    alignas(64) std::atomic<std::uint32_t> completed_{0};
    alignas(64) std::atomic<std::uint32_t> wakeups_{0};  // sleeping workers wait for it to change
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> workers_;  // last: the threads use everything above
};

}  // namespace memfabric
