// SPDX-License-Identifier: Apache-2.0
#include "memory/readable_memory.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/last_error.h"
#include "tests/assertions.h"
#include "tests/descriptor_limits.h"

using namespace memfabric;
using namespace memfabric::tests;

namespace {

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t address_of(const std::vector<char>& memory) { return reinterpret_cast<std::uint64_t>(memory.data()); }

}  // namespace

TEST(ReadableMemory, knows_ours_and_no_other) {
    const std::vector<char> memory(16 * kPageBytes, 1);
    ReadableMemory readable;
    bool answer = false;
    EXPECT_EQ(readable.covers(address_of(memory), memory.size(), answer), Status::Ok);
    EXPECT_TRUE(answer);
    EXPECT_EQ(readable.covers(16, 8, answer), Status::Ok);
    EXPECT_FALSE(answer);
}

// "No" would make the caller refuse memory that is fine, "yes" accept what may be garbage.
TEST(ReadableMemory, that_nobody_can_look_at_is_no_answer) {
    if (kSanitizerNeedsDescriptors) GTEST_SKIP() << kNoneToSpare;
    const std::vector<char> memory(16 * kPageBytes, 1);
    ReadableMemory readable;
    bool answer = false;
    {
        const NoDescriptorLeft none;
        EXPECT_EQ(readable.covers(address_of(memory), memory.size(), answer), Status::NoResources);
        EXPECT_TRUE(contains(last_error(), "/proc/self/maps"));
    }
    EXPECT_EQ(readable.covers(address_of(memory), memory.size(), answer), Status::Ok);  // the failure is not remembered
    EXPECT_TRUE(answer);
}
