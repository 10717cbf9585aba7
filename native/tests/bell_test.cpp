// SPDX-License-Identifier: Apache-2.0
#include "core/bell.h"

#include <atomic>
#include <thread>

#include "check.h"

using namespace memfabric;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kForever = 20s;  // a sleeper that is still asleep then has missed its ring

}  // namespace

// The waker does everything between the sleeper's last look and its sleep.
TEST(ring_between_the_last_look_and_the_sleep_is_heard) {
    Bell bell{};
    bool changed = false;
    const auto began = Clock::now();
    bell.sleep_unless(
        [&] {
            const bool seen = changed;
            changed = true;
            bell.ring();
            return seen;
        },
        kForever);
    CHECK(Clock::now() - began < kForever / 2);
    CHECK_EQ(bell.sleepers.load(), 0U);
}

TEST(bell_is_silent_while_nobody_sleeps) {
    Bell bell{};
    bell.ring();
    CHECK_EQ(bell.rings.load(), 0U);
}

TEST(whoever_sees_the_change_does_not_sleep) {
    Bell bell{};
    const auto began = Clock::now();
    bell.sleep_unless([] { return true; }, kForever);
    CHECK(Clock::now() - began < kForever / 2);
}

// Two threads that do nothing but sleep until it is their turn: every ring is needed.
TEST(no_ring_is_lost_among_many) {
    Bell bell{};
    std::atomic<unsigned> turn{0};
    constexpr unsigned kTurns = 20'000;
    const auto play = [&](unsigned parity) {
        for (unsigned mine = parity; mine < kTurns; mine += 2) {
            const auto began = Clock::now();
            const auto is_over = [&] { return turn.load() == mine || turn.load() >= kTurns; };
            while (!is_over()) bell.sleep_unless(is_over, kForever);
            const bool in_time = CHECK(Clock::now() - began < kForever);
            turn.store(in_time ? mine + 1 : kTurns);  // a lost ring ends the game for both
            bell.ring();
            if (!in_time) return;
        }
    };
    std::thread other(play, 1U);
    play(0);
    other.join();
}
