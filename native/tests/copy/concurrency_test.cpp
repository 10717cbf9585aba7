// SPDX-License-Identifier: Apache-2.0
//
// Many threads, changes of the thread limit and forks around one engine. Meant to be run under TSan as well.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "copy/engine.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/copy/fenced_memory.h"

using namespace memfabric;
using tests::fill;
using tests::kMiB;

namespace {

struct Buffers {
    explicit Buffers(std::uint64_t seed) : source(3 * kMiB), target(3 * kMiB) { fill(source, seed); }

    std::vector<std::byte> source;
    std::vector<std::byte> target;
};

// Copies of sizes on both sides of every threshold, each verified at once.
bool copy_and_verify(CopyEngine& engine, Buffers& buffers, int rounds) {
    auto& [source, target] = buffers;
    for (int round = 0; round < rounds; ++round) {
        const std::size_t sizes[] = {100, 200 * 1024, kMiB + 13, 3 * kMiB - 64};
        const std::size_t size_bytes = sizes[static_cast<std::size_t>(round) % std::size(sizes)];
        const std::size_t offset = static_cast<std::size_t>(round) % 64;
        std::memset(target.data(), 0, target.size());
        engine.copy(target.data() + offset, source.data(), size_bytes);
        if (std::memcmp(target.data() + offset, source.data(), size_bytes) != 0) return false;
    }
    return true;
}

bool copy_and_verify(CopyEngine& engine, std::uint64_t seed, int rounds) {
    Buffers buffers(seed);
    return copy_and_verify(engine, buffers, rounds);
}

}  // namespace

TEST(CopyConcurrency, many_threads_copy_at_once) {
    CopyEngine engine;
    engine.set_thread_limit(3);
    std::vector<std::thread> callers;
    for (std::uint64_t i = 0; i < 6; ++i) {
        callers.emplace_back([&engine, i] { EXPECT_TRUE(copy_and_verify(engine, i, 16)); });
    }
    for (std::thread& caller : callers) caller.join();
}

TEST(CopyConcurrency, thread_limit_changes_during_copies) {
    CopyEngine engine;
    std::atomic<bool> done{false};
    std::thread changer([&] {
        for (unsigned i = 0; !done.load(); ++i) {
            i % 5 == 4 ? engine.shut_down() : engine.set_thread_limit(i % 5);
            std::this_thread::yield();
        }
    });
    std::thread other([&] { EXPECT_TRUE(copy_and_verify(engine, 7, 24)); });
    EXPECT_TRUE(copy_and_verify(engine, 8, 24));
    other.join();
    done.store(true);
    changer.join();
}

// Streaming stores must be in place before the flag that announces them.
TEST(CopyConcurrency, bytes_arrive_before_their_announcement) {
    constexpr std::size_t kSizeBytes = 2 * kMiB + 4096;
    CopyEngine engine;
    engine.set_thread_limit(2);
    std::vector<std::byte> target(kSizeBytes);
    std::atomic<unsigned> announced{0};
    std::atomic<unsigned> verified{0};
    std::thread reader([&] {
        for (unsigned round = 1; round <= 40; ++round) {
            const std::vector<std::byte> expected(kSizeBytes, static_cast<std::byte>(round));
            while (announced.load(std::memory_order_acquire) != round) std::this_thread::yield();
            EXPECT_EQ(std::memcmp(target.data(), expected.data(), kSizeBytes), 0);
            verified.store(round, std::memory_order_release);
        }
    });
    for (unsigned round = 1; round <= 40; ++round) {
        const std::vector<std::byte> source(kSizeBytes, static_cast<std::byte>(round));
        engine.copy(target.data(), source.data(), kSizeBytes);
        announced.store(round, std::memory_order_release);
        while (verified.load(std::memory_order_acquire) != round) std::this_thread::yield();
    }
    reader.join();
}

TEST(CopyConcurrency, child_of_a_fork_copies_alone) {
    CopyEngine& engine = CopyEngine::process();
    engine.set_thread_limit(3);
    EXPECT_TRUE(copy_and_verify(engine, 1, 4));  // workers are running now
    // Nobody allocates from here on: AddressSanitizer's allocator, unlike the C library's, may be locked for ever in a
    // child.
    Buffers of_busy(2);
    Buffers of_child(3);
    std::atomic<int> copied{0};
    std::atomic<bool> done{false};
    std::thread busy([&] {
        for (; !done.load(); ++copied) EXPECT_TRUE(copy_and_verify(engine, of_busy, 4));
    });
    while (copied.load() == 0) std::this_thread::yield();
    for (int round = 0; round < 10; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);  // a hang becomes a failure
            const bool right = copy_and_verify(engine, of_child, 4);
            engine.shut_down();
            _exit(right ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    done.store(true);
    busy.join();
    EXPECT_TRUE(copy_and_verify(engine, 4, 4));
    engine.set_thread_limit(0);
}
