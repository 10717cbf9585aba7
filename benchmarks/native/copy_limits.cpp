// SPDX-License-Identifier: Apache-2.0
#include "copy_limits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

struct Work {
    const uint64_t* targets;
    const uint64_t* sources;
    const uint64_t* sizes;
    uint32_t begin;
    uint32_t end;
    uint64_t skip;  // bytes of each piece that somebody else copies
};

std::byte* target_of(const Work& work, uint32_t i) { return reinterpret_cast<std::byte*>(work.targets[i]) + work.skip; }
const std::byte* source_of(const Work& work, uint32_t i) {
    return reinterpret_cast<const std::byte*>(work.sources[i]) + work.skip;
}

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void stream(std::byte* target, const std::byte* source, std::size_t size_bytes) {
    std::size_t done = 0;
    if (reinterpret_cast<uintptr_t>(target) % 32 == 0) {
        for (; done + 128 <= size_bytes; done += 128) {
            const auto* from = reinterpret_cast<const __m256i*>(source + done);
            auto* to = reinterpret_cast<__m256i*>(target + done);
            const __m256i a = _mm256_loadu_si256(from);
            const __m256i b = _mm256_loadu_si256(from + 1);
            const __m256i c = _mm256_loadu_si256(from + 2);
            const __m256i d = _mm256_loadu_si256(from + 3);
            _mm256_stream_si256(to, a);
            _mm256_stream_si256(to + 1, b);
            _mm256_stream_si256(to + 2, c);
            _mm256_stream_si256(to + 3, d);
        }
        _mm_sfence();
    }
    std::memcpy(target + done, source + done, size_bytes - done);
}
bool can_stream() { return __builtin_cpu_supports("avx2") != 0; }
#else
void stream(std::byte* target, const std::byte* source, std::size_t size_bytes) {
    std::memcpy(target, source, size_bytes);
}
bool can_stream() { return true; }
#endif

void copy_all(const Work& work) {
    for (uint32_t i = work.begin; i < work.end; ++i) {
        std::memcpy(target_of(work, i), source_of(work, i), work.sizes[i] - work.skip);
    }
}

void stream_all(const Work& work) {
    for (uint32_t i = work.begin; i < work.end; ++i) {
        stream(target_of(work, i), source_of(work, i), work.sizes[i] - work.skip);
    }
}

// The second thread, spinning for work: what a wake-up costs is not part of the limit.
class SpinningThread {
public:
    void start() {
        stopping_.store(false);
        if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    }
    void stop() {
        stopping_.store(true);
        if (thread_.joinable()) thread_.join();
    }
    bool running() const { return thread_.joinable(); }
    void begin(const Work& work) {
        work_ = work;
        requested_.fetch_add(1, std::memory_order_release);
    }
    void finish() const {
        while (completed_.load(std::memory_order_acquire) != requested_.load(std::memory_order_relaxed)) relax();
    }

private:
    void serve() {
        while (!stopping_.load(std::memory_order_relaxed)) {
            const uint32_t request = requested_.load(std::memory_order_acquire);
            if (request == completed_.load(std::memory_order_relaxed)) {
                relax();
                continue;
            }
            copy_all(work_);
            completed_.store(request, std::memory_order_release);
        }
    }

    Work work_{};
    alignas(64) std::atomic<uint32_t> requested_{0};
    alignas(64) std::atomic<uint32_t> completed_{0};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

SpinningThread second_thread;

// A batch is halved by pieces, a single piece by bytes.
void copy_on_two_threads(const Work& work) {
    Work mine = work;
    Work theirs = work;
    if (work.end == 1) {
        theirs.skip = work.sizes[0] / 2;
        second_thread.begin(theirs);
        std::memcpy(target_of(work, 0), source_of(work, 0), theirs.skip);
    } else {
        mine.end = theirs.begin = work.end / 2;
        second_thread.begin(theirs);
        copy_all(mine);
    }
    second_thread.finish();
}

}  // namespace

#define MF_EXPORT __attribute__((visibility("default")))

extern "C" {

MF_EXPORT void mf_limit_start_spinning(void) { second_thread.start(); }
MF_EXPORT void mf_limit_stop_spinning(void) { second_thread.stop(); }

MF_EXPORT double mf_limit(int kind, const uint64_t* targets, const uint64_t* sources, const uint64_t* sizes,
                          uint32_t count) {
    const Work work{targets, sources, sizes, 0, count, 0};
    const Clock::time_point start = Clock::now();
    if (kind == MF_LIMIT_MEMCPY) {
        copy_all(work);
    } else if (kind == MF_LIMIT_STREAM && can_stream()) {
        stream_all(work);
    } else if (kind == MF_LIMIT_MEMCPY_TWO_THREADS && second_thread.running() && count != 0) {
        copy_on_two_threads(work);
    } else {
        return -1;
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // extern "C"
