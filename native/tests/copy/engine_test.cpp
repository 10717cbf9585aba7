// SPDX-License-Identifier: Apache-2.0
#include "copy/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/copy/fenced_memory.h"

using namespace memfabric;
using tests::FencedMemory;
using tests::fill;
using tests::kKiB;
using tests::kMiB;
using tests::same_bytes;

namespace {

// The whole memory is compared with what memmove does to its twin: bytes beside the target must stay untouched.
class Twins {
public:
    explicit Twins(std::size_t size_bytes) : real_(size_bytes), model_(real_.bytes().size()) {}

    bool same_after_copy(CopyEngine& engine, std::size_t to, std::size_t from, std::size_t size_bytes) {
        fill(real_.bytes(), seed_++);
        std::ranges::copy(real_.bytes(), model_.begin());
        std::memmove(model_.data() + to, model_.data() + from, size_bytes);
        engine.copy(real_.begin() + to, real_.begin() + from, size_bytes);
        return std::memcmp(model_.data(), real_.begin(), model_.size()) == 0;
    }

    std::size_t size_bytes() const { return model_.size(); }

private:
    FencedMemory real_;
    std::vector<std::byte> model_;
    std::uint64_t seed_ = 1;
};

unsigned worker_count() {
    unsigned count = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(thread.path() / "comm") >> name;  // empty if the thread has just ended
        if (name.starts_with("mf-copy-")) ++count;
    }
    return count;
}

// Polls: a new thread takes a moment to name itself, and the kernel lists a thread for a moment after it was joined.
void check_worker_count(unsigned expected) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (worker_count() != expected && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(worker_count(), expected);
}

}  // namespace

TEST(CopyEngine, copies_every_small_size) {
    CopyEngine engine;
    Twins twins(3 * 4096);
    for (std::size_t size_bytes = 0; size_bytes <= 4096 + 66; ++size_bytes) {
        ASSERT_TRUE(twins.same_after_copy(engine, size_bytes % 61, 6000 + size_bytes % 67, size_bytes)) << size_bytes;
    }
}

TEST(CopyEngine, copies_sizes_around_every_threshold_with_every_thread_limit) {
    CopyEngine engine;
    Twins twins(4 * kMiB + 4096);
    for (const unsigned threads : {1U, 2U, 3U, 4U}) {
        engine.set_thread_limit(threads);
        for (const std::size_t size_bytes : {CopyEngine::kDirectLimitBytes, 64 * kKiB * 3, kMiB, 2 * kMiB}) {
            ASSERT_TRUE(twins.same_after_copy(engine, 1, twins.size_bytes() - size_bytes + 1, size_bytes - 1));
            ASSERT_TRUE(twins.same_after_copy(engine, 0, twins.size_bytes() - size_bytes, size_bytes));
            ASSERT_TRUE(twins.same_after_copy(engine, twins.size_bytes() - size_bytes - 1, 0, size_bytes + 1));
        }
    }
}

TEST(CopyEngine, copies_large_with_every_misalignment) {
    CopyEngine engine;
    engine.set_thread_limit(2);
    constexpr std::size_t kSizeBytes = 2 * kMiB + 77;
    FencedMemory source(kSizeBytes + 64);
    FencedMemory target(kSizeBytes + 64);
    fill(source.bytes(), 5);
    for (std::size_t offset = 0; offset < 64; ++offset) {
        const std::size_t from = offset * 11 % 64;
        engine.copy(target.begin() + offset, source.begin() + from, kSizeBytes);
        ASSERT_EQ(std::memcmp(target.begin() + offset, source.begin() + from, kSizeBytes), 0);
    }
}

TEST(CopyEngine, copies_overlapping_both_directions) {
    CopyEngine engine;
    engine.set_thread_limit(3);
    Twins small(64 * kKiB);
    Twins large(4 * kMiB);
    for (const std::size_t shift :
         {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{4097}}) {
        EXPECT_TRUE(small.same_after_copy(engine, shift, 0, small.size_bytes() - shift));
        EXPECT_TRUE(small.same_after_copy(engine, 0, shift, small.size_bytes() - shift));
        EXPECT_TRUE(large.same_after_copy(engine, shift, 0, large.size_bytes() - shift));
        EXPECT_TRUE(large.same_after_copy(engine, 0, shift, large.size_bytes() - shift));
    }
    EXPECT_TRUE(large.same_after_copy(engine, 2 * kMiB - 1, 0, 2 * kMiB));  // one byte in common
    EXPECT_TRUE(large.same_after_copy(engine, 2 * kMiB, 0, 2 * kMiB));      // none
}

TEST(CopyEngine, copy_of_nothing_accepts_null) {
    CopyEngine engine;
    engine.copy(nullptr, nullptr, 0);
    engine.copy_batch({});
    engine.copy_2d(nullptr, 0, nullptr, 0, 0, 0);
    const Piece nothing{nullptr, nullptr, 0};
    engine.copy_batch(std::array{nothing, nothing});
    std::vector<std::byte> source(3 * kMiB, std::byte{7});
    std::vector<std::byte> target(3 * kMiB);
    engine.copy_batch(std::array{nothing, Piece{target.data(), source.data(), target.size()}, nothing});
    EXPECT_TRUE(same_bytes(target, source));
}

TEST(CopyEngine, threads_start_at_the_first_large_copy_and_join) {
    CopyEngine::process().set_thread_limit(0);  // joins workers that other tests left running
    std::vector<std::byte> source(4 * kMiB);
    std::vector<std::byte> target(4 * kMiB);
    {
        CopyEngine engine;
        engine.set_thread_limit(4);
        engine.copy(target.data(), source.data(), CopyEngine::kDirectLimitBytes);
        check_worker_count(0);
        engine.copy(target.data(), source.data(), source.size());
        check_worker_count(3);
        engine.set_thread_limit(2);
        engine.copy(target.data(), source.data(), source.size());
        check_worker_count(1);
    }
    check_worker_count(0);
}

TEST(CopyEngine, copies_after_shut_down) {
    CopyEngine::process().set_thread_limit(0);  // joins workers that other tests left running
    CopyEngine engine;
    engine.set_thread_limit(3);
    Twins twins(6 * kMiB);
    EXPECT_TRUE(twins.same_after_copy(engine, 0, 3 * kMiB, 3 * kMiB));
    engine.shut_down();
    engine.shut_down();
    check_worker_count(0);
    EXPECT_TRUE(twins.same_after_copy(engine, 0, 3 * kMiB, 3 * kMiB));
    check_worker_count(0);
    engine.set_thread_limit(2);
    EXPECT_TRUE(twins.same_after_copy(engine, 0, 3 * kMiB, 3 * kMiB));
    check_worker_count(1);
}

TEST(CopyEngine, of_the_process_is_one) { EXPECT_EQ(&CopyEngine::process(), &CopyEngine::process()); }
