// SPDX-License-Identifier: Apache-2.0
#include "memory/readable_memory.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/last_error.h"
#include "tests/check.h"
#include "tests/descriptor_limits.h"

using namespace memfabric;
using namespace memfabric::testing;

namespace {

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t address_of(const std::vector<char>& memory) { return reinterpret_cast<std::uint64_t>(memory.data()); }

}  // namespace

TEST(readable_memory_knows_ours_and_no_other) {
    const std::vector<char> memory(16 * kPageBytes, 1);
    ReadableMemory readable;
    bool answer = false;
    CHECK_EQ(readable.covers(address_of(memory), memory.size(), answer), Status::Ok);
    CHECK(answer);
    CHECK_EQ(readable.covers(16, 8, answer), Status::Ok);
    CHECK(!answer);
}

// "No" would make the caller refuse memory that is fine, "yes" accept what may be garbage.
TEST(readable_memory_that_nobody_can_look_at_is_no_answer) {
    if (kSanitizerNeedsDescriptors) return;
    const std::vector<char> memory(16 * kPageBytes, 1);
    ReadableMemory readable;
    bool answer = false;
    {
        const NoDescriptorLeft none;
        CHECK_EQ(readable.covers(address_of(memory), memory.size(), answer), Status::NoResources);
        CHECK(last_error().find("/proc/self/maps") != std::string::npos);
    }
    CHECK_EQ(readable.covers(address_of(memory), memory.size(), answer), Status::Ok);  // the failure is not remembered
    CHECK(answer);
}
