// SPDX-License-Identifier: Apache-2.0
#include "base/traffic.h"

#include "tests/assertions.h"

namespace memfabric {
namespace {

TEST(Traffic, size_classes_begin_where_they_say) {
    for (std::size_t index = 1; index < kSizeClasses; ++index) {
        EXPECT_EQ(size_class(smallest_of_class(index)), index);
        EXPECT_EQ(size_class(smallest_of_class(index) - 1), index - 1);
    }
    EXPECT_EQ(smallest_of_class(1), 4096U);
    EXPECT_EQ(size_class(0), 0U);
    EXPECT_EQ(size_class(1), 0U);
    EXPECT_EQ(size_class(UINT64_MAX), kSizeClasses - 1);
}

TEST(Traffic, counts_calls_and_bytes_apart) {
    TrafficCounters counters;
    counters.add(Route::Mapped, Operation::Copy, 100);
    counters.add(Route::Mapped, Operation::Copy, 200);
    counters.add(Route::PeerProcess, Operation::Write, 1 << 20);
    EXPECT_EQ(counters.read(Route::Mapped, Operation::Copy, 0).calls, 2U);
    EXPECT_EQ(counters.read(Route::Mapped, Operation::Copy, 0).bytes, 300U);
    EXPECT_EQ(counters.read(Route::Mapped, Operation::Read, 0).calls, 0U);
    EXPECT_EQ(counters.read(Route::PeerProcess, Operation::Write, size_class(1 << 20)).bytes, 1U << 20);
    counters.clear();
    EXPECT_EQ(counters.read(Route::Mapped, Operation::Copy, 0).calls, 0U);
}

}  // namespace
}  // namespace memfabric
