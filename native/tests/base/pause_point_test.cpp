// SPDX-License-Identifier: Apache-2.0
#include "base/pause_point.h"

#include <atomic>
#include <thread>

#include "tests/check.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;

}  // namespace

TEST(pause_points_hold_nobody_unless_asked) {
    PausePoint::reach("test.nobody");
    CHECK(!PausePoint::wait_until_held("test.nobody", 0ns));
}

TEST(pause_points_hold_threads_until_they_are_released) {
    std::atomic<bool> passed{false};
    PausePoint::hold("test.point");
    std::thread walker([&] {
        PausePoint::reach("test.other");
        PausePoint::reach("test.point");
        passed = true;
    });
    CHECK(PausePoint::wait_until_held("test.point", 10s));
    CHECK(!passed.load());
    PausePoint::release("test.point");
    walker.join();
    CHECK(passed.load());
    PausePoint::reach("test.point");
}

}  // namespace memfabric
