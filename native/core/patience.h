// SPDX-License-Identifier: Apache-2.0
//
// Waiting for a word that nobody announces: spins briefly, yields, then sleeps in growing steps of at most 0.5 ms. For
// rare writers whose readers must not pay for a wake-up.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/vigil.h"

namespace memfabric {

class Patience {
public:
    void wait() {
        ++turns_;
        if (turns_ <= kSpins) return;
        if (turns_ <= kSpins + kYields) {
            if (!yield_was_short()) turns_ = kSpins + kYields;
            return;
        }
        std::this_thread::sleep_for(sleep_);
        sleep_ = std::min(sleep_ * 2, kLongestSleep);
    }

private:
    static constexpr int kSpins = 64;
    static constexpr int kYields = 64;
    static constexpr std::chrono::microseconds kLongestSleep{500};

    int turns_ = 0;
    std::chrono::microseconds sleep_{20};
};

}  // namespace memfabric
