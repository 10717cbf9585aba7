// SPDX-License-Identifier: Apache-2.0
#include "copy/worker_pool.h"

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "tests/assertions.h"

using namespace memfabric;

namespace {

// Counts plainly, not atomically: a chunk that two threads run is a race that TSan reports.
class CountingJob final : public ChunkedJob {
public:
    explicit CountingJob(std::uint32_t chunks) : runs_(chunks) {}
    std::uint32_t chunk_count() const noexcept override { return static_cast<std::uint32_t>(runs_.size()); }
    void run_chunk(std::uint32_t chunk) const noexcept override { ++runs_[chunk]; }
    bool each_ran_once() const {
        for (unsigned runs : runs_) {
            if (runs != 1) return false;
        }
        return true;
    }

private:
    mutable std::vector<unsigned> runs_;
};

// Either chunk waits for the other to have started: met() only if two threads took part.
class MeetingJob final : public ChunkedJob {
public:
    std::uint32_t chunk_count() const noexcept override { return 2; }
    void run_chunk(std::uint32_t) const noexcept override {
        arrived_.fetch_add(1);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (!met() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        if (!met()) arrived_.store(-100);
    }
    bool met() const { return arrived_.load() == 2; }

private:
    mutable std::atomic<int> arrived_{0};
};

// The caller's chunk ends as soon as a worker has begun the other one, which takes long.
class SlowWorkerJob final : public ChunkedJob {
public:
    std::uint32_t chunk_count() const noexcept override { return 2; }
    void run_chunk(std::uint32_t) const noexcept override {
        if (std::this_thread::get_id() == caller_) {
            const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
            while (!begun_.load() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        } else {
            begun_.store(true);
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
        finished_.fetch_add(1, std::memory_order_relaxed);
    }
    bool helped() const { return begun_.load(); }
    int finished() const { return finished_.load(std::memory_order_relaxed); }

private:
    std::thread::id caller_ = std::this_thread::get_id();
    mutable std::atomic<bool> begun_{false};
    mutable std::atomic<int> finished_{0};
};

class CallerOnlyJob final : public ChunkedJob {
public:
    std::uint32_t chunk_count() const noexcept override { return 100; }
    void run_chunk(std::uint32_t) const noexcept override {
        if (std::this_thread::get_id() != caller_) strangers_.fetch_add(1);
    }
    int strangers() const { return strangers_.load(); }

private:
    std::thread::id caller_ = std::this_thread::get_id();
    mutable std::atomic<int> strangers_{0};
};

double process_cpu_ms() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

}  // namespace

TEST(WorkerPool, runs_every_chunk_once) {
    WorkerPool pool(3);
    for (std::uint32_t round = 0; round < 2000; ++round) {
        const CountingJob job(1 + round % 300);
        pool.run(job, round % 2 == 0 ? WorkerPool::Wake::kSleepers : WorkerPool::Wake::kNobody);
        ASSERT_TRUE(job.each_ran_once());
    }
}

TEST(WorkerPool, takes_the_largest_job) {
    WorkerPool pool(2);
    const CountingJob job(0xFFFF);
    pool.run(job, WorkerPool::Wake::kSleepers);
    EXPECT_TRUE(job.each_ran_once());
}

TEST(WorkerPool, survives_an_empty_job) {
    WorkerPool pool(1);
    const CountingJob job(0);
    pool.run(job, WorkerPool::Wake::kSleepers);
    EXPECT_TRUE(job.each_ran_once());
}

TEST(WorkerPool, wakes_its_workers) {
    WorkerPool pool(1);
    for (int round = 0; round < 5; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough for the worker to sleep, too
        const MeetingJob job;
        pool.run(job, WorkerPool::Wake::kSleepers);
        ASSERT_TRUE(job.met());
    }
}

TEST(WorkerPool, waits_for_chunks_under_way) {
    WorkerPool pool(1);
    for (int round = 0; round < 5; ++round) {
        const SlowWorkerJob job;
        pool.run(job, WorkerPool::Wake::kSleepers);
        EXPECT_EQ(job.finished(), 2);
        EXPECT_TRUE(job.helped());
    }
}

TEST(WorkerPool, without_workers_leaves_all_to_the_caller) {
    WorkerPool pool(0);
    const CallerOnlyJob job;
    pool.run(job, WorkerPool::Wake::kSleepers);
    EXPECT_EQ(job.strangers(), 0);
}

TEST(WorkerPool, starts_and_stops_at_once) {
    for (int round = 0; round < 50; ++round) {
        WorkerPool pool(3);
        if (round % 2 == 0) pool.run(CountingJob(8), WorkerPool::Wake::kSleepers);
    }
}

TEST(WorkerPool, burns_no_core_when_idle) {
    WorkerPool pool(3);
    pool.run(CountingJob(64), WorkerPool::Wake::kSleepers);
    const double before_ms = process_cpu_ms();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_LT(process_cpu_ms() - before_ms, 100);  // three spinning workers would have used 300 and more
}
