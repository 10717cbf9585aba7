// SPDX-License-Identifier: Apache-2.0
#include "copy/worker_pool.h"

#include <chrono>
#include <exception>
#include <string>

#include "base/blocked_signals.h"
#include "base/cpu.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

// A worker spins this long after its last chunk before it sleeps. Copies of a busy program follow each other closely
// and then find it awake; an idle program burns nothing.
constexpr auto kSpinTime = std::chrono::microseconds(100);
constexpr unsigned kSpinsPerClockRead = 64;

// The caller spins this often for chunks under way elsewhere, then also yields its core: with more threads than cores
// the worker may need that very core to finish.
constexpr unsigned kSpinsBeforeYield = 20'000;

constexpr std::uint64_t kNextMask = 0xFFFF;
constexpr unsigned kCountShift = 16;
constexpr unsigned kGenerationShift = 32;

constexpr std::uint32_t next_chunk(std::uint64_t claims) { return static_cast<std::uint32_t>(claims & kNextMask); }
constexpr std::uint32_t chunk_count_of(std::uint64_t claims) {
    return static_cast<std::uint32_t>((claims >> kCountShift) & kNextMask);
}
constexpr bool has_work(std::uint64_t claims) { return next_chunk(claims) < chunk_count_of(claims); }

}  // namespace

WorkerPool::WorkerPool(unsigned workers) {
    const BlockedSignals blocked;
    try {
        workers_.reserve(workers);
        for (unsigned i = 0; i < workers; ++i) workers_.emplace_back([this, i] { serve(i); });
    } catch (const std::exception&) {
        // The system is out of threads or memory: copies are correct with those we have, even with none.
    }
}

WorkerPool::~WorkerPool() {
    stopping_.store(true);
    wakeups_.fetch_add(1);
    wakeups_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::run(const ChunkedJob& job, Wake wake) noexcept {
    const std::uint32_t chunk_count = job.chunk_count();
    job_ = &job;
    completed_.store(0, std::memory_order_relaxed);
    const std::uint64_t generation = (claims_.load(std::memory_order_relaxed) >> kGenerationShift) + 1;
    claims_.store(generation << kGenerationShift | std::uint64_t{chunk_count} << kCountShift,
                  std::memory_order_release);
    if (wake == Wake::kSleepers) {
        wakeups_.fetch_add(1);
        wakeups_.notify_all();  // a system call only if somebody sleeps
    }
    while (work_on_one_chunk()) {
    }
    for (unsigned spins = 0; completed_.load(std::memory_order_acquire) != chunk_count; ++spins) {
        spins < kSpinsBeforeYield ? cpu_relax() : std::this_thread::yield();
    }
}

bool WorkerPool::work_on_one_chunk() noexcept {
    std::uint64_t claims = claims_.load(std::memory_order_acquire);
    do {
        if (!has_work(claims)) return false;
    } while (!claims_.compare_exchange_weak(claims, claims + 1, std::memory_order_acquire));
    job_->run_chunk(next_chunk(claims));
    completed_.fetch_add(1, std::memory_order_release);
    return true;
}

void WorkerPool::serve(unsigned index) noexcept {
    pthread_setname_np(pthread_self(), ("mf-copy-" + std::to_string(index)).c_str());
    while (wait_for_work()) {
        while (work_on_one_chunk()) {
        }
    }
}

// False when the pool is being destroyed.
bool WorkerPool::wait_for_work() noexcept {
    const Clock::time_point sleep_at = Clock::now() + kSpinTime;
    do {
        for (unsigned i = 0; i < kSpinsPerClockRead; ++i) {
            if (has_work(claims_.load(std::memory_order_relaxed))) return true;
            cpu_relax();
        }
    } while (Clock::now() < sleep_at);
    for (;;) {
        // Read before the checks: a wake-up after them changes it, and wait() returns at once.
        const std::uint32_t seen = wakeups_.load();
        if (stopping_.load()) return false;
        if (has_work(claims_.load())) return true;
        wakeups_.wait(seen);
    }
}

}  // namespace memfabric
