// SPDX-License-Identifier: Apache-2.0
//
// How to wait in steps, from a few looks to a sleep. `AdaptiveWait` is what comes before a sleep that somebody ends,
// and `Backoff` is a whole wait that nobody ends but time.
//
// Before it sleeps, a member looks for some microseconds, then lets others run, who may be those it waits for.
//
// Letting others run is cheap among members who wait, and a trap beside a stranger who computes: since Linux 6.18 a
// thread that yields gives up the rest of its slice *and* is charged for it, so a hundred yields beside one busy thread
// take a hundred slices, 0.1 to 0.3 s, and with several busy threads or several members on that core seconds. A sleeper
// is woken within microseconds instead. So a yield that lasted long ends the yielding, for this wait and for many to
// come; now and then one wait tries again.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/cpu.h"

namespace memfabric {

// True if whoever ran meanwhile gave the core back soon: nobody but members who wait wants it.
inline bool yield_was_short() {
    constexpr std::chrono::microseconds kLong{500};  // a slice is some milliseconds
    const auto began = std::chrono::steady_clock::now();
    sched_yield();
    return std::chrono::steady_clock::now() - began < kLong;
}

// Polls before a sleep. Thread contract: one thread at a time.
class AdaptiveWait {
public:
    // `crowded`: more members than processors, so looking actively would keep the others from arriving.
    explicit AdaptiveWait(bool crowded) : crowded_(crowded) {}

    // True as soon as `done()`; false when it pays to sleep. `yield` is false if it took long.
    template <typename Done, typename Yield = bool (*)()>
    bool poll(Done done, Yield yield = yield_was_short) {
        if (spin(kSpins, done)) return true;
        if (without_yields_ > 0) {
            --without_yields_;
            return spin(kMoreSpins, done) || done();
        }
        for (int i = 0; i < kYields; ++i) {
            if (done()) return true;
            if (yield()) continue;
            without_yields_ = next_pause_;
            next_pause_ = std::min(next_pause_ * 2, kLongestPause);
            return done();
        }
        next_pause_ = kShortestPause;
        return done();
    }

private:
    template <typename Done>
    bool spin(int times, Done& done) const {
        for (int i = 0; i < times && !crowded_; ++i) {
            if (done()) return true;
            cpu_relax();
        }
        return false;
    }

    static constexpr int kSpins = 200;       // a few µs: the others are usually just arriving
    static constexpr int kYields = 100;      // then it pays to sleep
    static constexpr int kMoreSpins = 1800;  // instead of yields: as long as going to sleep and waking up takes
    static constexpr int kShortestPause = 64, kLongestPause = 4096;

    const bool crowded_;
    int without_yields_ = 0;  // waits to come
    int next_pause_ = kShortestPause;
};

// Waiting for a word that nobody announces: spins briefly, yields, then sleeps in growing steps of at most 0.5 ms.
// For rare writers whose readers must not pay for a wake-up.
class Backoff {
public:
    void wait() {
        ++rounds_;
        if (rounds_ <= kSpins) return;
        if (rounds_ <= kSpins + kYields) {
            if (!yield_was_short()) rounds_ = kSpins + kYields;
            return;
        }
        std::this_thread::sleep_for(sleep_);
        sleep_ = std::min(sleep_ * 2, kLongestSleep);
    }

private:
    static constexpr int kSpins = 64;
    static constexpr int kYields = 64;
    static constexpr std::chrono::microseconds kLongestSleep{500};

    int rounds_ = 0;
    std::chrono::microseconds sleep_{20};
};

}  // namespace memfabric
