// SPDX-License-Identifier: Apache-2.0
#include "sync/event_count.h"

#include <atomic>
#include <thread>

#include "tests/assertions.h"

using namespace memfabric;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kForever = 20s;  // a sleeper that is still asleep then has missed its notification

}  // namespace

// The waker does everything between the sleeper's last look and its sleep.
TEST(EventCount, notification_between_the_last_look_and_the_sleep_is_seen) {
    EventCount event{};
    bool changed = false;
    const auto began = Clock::now();
    event.wait_unless(
        [&] {
            const bool seen = changed;
            changed = true;
            event.notify_all();
            return seen;
        },
        kForever);
    EXPECT_LT(Clock::now() - began, kForever / 2);
    EXPECT_EQ(event.waiters.load(), 0U);
}

TEST(EventCount, is_not_touched_while_nobody_sleeps) {
    EventCount event{};
    event.notify_all();
    EXPECT_EQ(event.epoch.load(), 0U);
}

TEST(EventCount, whoever_sees_the_change_does_not_sleep) {
    EventCount event{};
    const auto began = Clock::now();
    event.wait_unless([] { return true; }, kForever);
    EXPECT_LT(Clock::now() - began, kForever / 2);
}

// Two threads that do nothing but sleep until it is their turn: every notification is needed.
TEST(EventCount, no_notification_is_lost_among_many) {
    EventCount event{};
    std::atomic<unsigned> turn{0};
    constexpr unsigned kTurns = 20'000;
    const auto play = [&](unsigned parity) {
        for (unsigned mine = parity; mine < kTurns; mine += 2) {
            const auto began = Clock::now();
            const auto is_over = [&] { return turn.load() == mine || turn.load() >= kTurns; };
            while (!is_over()) event.wait_unless(is_over, kForever);
            const bool in_time = Clock::now() - began < kForever;
            EXPECT_TRUE(in_time) << "in turn " << mine;
            turn.store(in_time ? mine + 1 : kTurns);  // a lost notification ends the game for both
            event.notify_all();
            if (!in_time) return;
        }
    };
    std::thread other(play, 1U);
    play(0);
    other.join();
}
