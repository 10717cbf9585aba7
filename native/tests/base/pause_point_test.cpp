// SPDX-License-Identifier: Apache-2.0
#include "base/pause_point.h"

#include <atomic>
#include <thread>

#include "tests/assertions.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;

}  // namespace

TEST(PausePoints, hold_nobody_unless_asked) {
    PausePoint::reach("test.nobody");
    EXPECT_FALSE(PausePoint::wait_until_held("test.nobody", 0ns));
}

TEST(PausePoints, hold_threads_until_they_are_released) {
    std::atomic<bool> passed{false};
    PausePoint::hold("test.point");
    std::thread walker([&] {
        PausePoint::reach("test.other");
        PausePoint::reach("test.point");
        passed = true;
    });
    EXPECT_TRUE(PausePoint::wait_until_held("test.point", 10s));
    EXPECT_FALSE(passed.load());
    PausePoint::release("test.point");
    walker.join();
    EXPECT_TRUE(passed.load());
    PausePoint::reach("test.point");
}

TEST(PausePoints, let_threads_pass_once) {
    std::atomic<int> passed{0};
    PausePoint::hold("test.point");
    std::thread walker([&] {
        for (; passed < 3; ++passed) PausePoint::reach("test.point");
    });
    for (int before = 0; before < 2; ++before) {
        EXPECT_TRUE(PausePoint::wait_until_held("test.point", 10s));
        EXPECT_EQ(passed.load(), before);
        PausePoint::let_pass("test.point");
    }
    EXPECT_TRUE(PausePoint::wait_until_held("test.point", 10s));
    PausePoint::release("test.point");
    walker.join();
    EXPECT_EQ(passed.load(), 3);
    PausePoint::let_pass("test.point");  // nobody is held
}

}  // namespace memfabric
