// SPDX-License-Identifier: Apache-2.0
#include "copy/kernels.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/copy/fenced_memory.h"

using namespace memfabric;
using tests::FencedMemory;
using tests::fill;

namespace {

constexpr std::size_t kArenaBytes = 3 * 4096;

// A kernel's result compared with memcpy's over a whole arena, so that a byte written beside the target is noticed.
class Arena {
public:
    Arena() : source_(kArenaBytes), target_(kArenaBytes), expected_(kArenaBytes) { fill(source_.bytes(), 1); }

    bool same_as_memcpy(const StreamKernel& kernel, std::size_t to, std::size_t from, std::size_t size_bytes) {
        std::memset(target_.begin(), 0xA5, kArenaBytes);
        std::memset(expected_.data(), 0xA5, kArenaBytes);
        std::memcpy(expected_.data() + to, source_.begin() + from, size_bytes);
        kernel.copy(target_.begin() + to, source_.begin() + from, size_bytes);
        stream_fence();
        return std::memcmp(target_.begin(), expected_.data(), kArenaBytes) == 0;
    }

private:
    FencedMemory source_;
    FencedMemory target_;
    std::vector<std::byte> expected_;
};

}  // namespace

TEST(CopyKernels, match_this_machine) {
    ASSERT_FALSE(stream_kernels().empty());
#if defined(__x86_64__)
    EXPECT_EQ(std::string_view(stream_kernels().front().name), cpu_has_avx2() ? "avx2" : "sse2");
#elif defined(__aarch64__)
    EXPECT_EQ(std::string_view(stream_kernels().front().name), "stnp");
#endif
    EXPECT_GE(usable_cores(), 1);
}

TEST(CopyKernels, copy_every_size) {
    Arena arena;
    for (const StreamKernel& kernel : stream_kernels()) {
        SCOPED_TRACE(kernel.name);
        for (std::size_t size_bytes = 0; size_bytes <= 4096 + 130; ++size_bytes) {
            ASSERT_TRUE(arena.same_as_memcpy(kernel, size_bytes * 7 % 64, size_bytes * 13 % 64, size_bytes))
                << size_bytes;
        }
    }
}

TEST(CopyKernels, copy_every_misalignment) {
    Arena arena;
    for (const StreamKernel& kernel : stream_kernels()) {
        SCOPED_TRACE(kernel.name);
        for (std::size_t to = 0; to < 64; ++to) {
            for (std::size_t from = 0; from < 64; ++from) {
                ASSERT_TRUE(arena.same_as_memcpy(kernel, to, from, 1000 + (to + from) % 129));
            }
        }
    }
}

TEST(CopyKernels, stay_between_the_fences) {
    Arena arena;
    for (const StreamKernel& kernel : stream_kernels()) {
        SCOPED_TRACE(kernel.name);
        for (std::size_t size_bytes = 0; size_bytes <= 1300; ++size_bytes) {
            const std::size_t last = kArenaBytes - size_bytes;
            ASSERT_TRUE(arena.same_as_memcpy(kernel, last, last, size_bytes));
            ASSERT_TRUE(arena.same_as_memcpy(kernel, 0, last, size_bytes));
            ASSERT_TRUE(arena.same_as_memcpy(kernel, last, 0, size_bytes));
        }
    }
}
