// SPDX-License-Identifier: Apache-2.0
//
// Places where a test can hold threads, to force an interleaving that would otherwise come once in a million runs.
// Nothing happens at them unless a test has asked for it: one relaxed load. Not for the short path of a copy.
//
//     code under test: PausePoint::reach("transfer.close.after_lock");
//     test:            PausePoint::hold("…"); start; ASSERT_TRUE(PausePoint::wait_until_held("…", 10s)); …;
//                      PausePoint::release("…");
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "base/api.h"

namespace memfabric {

// Thread contract: any thread. A forked child starts with none held.
class MF_API PausePoint {
public:
    static void reach(const char* name) {
        if (held_.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wait_at(name);
    }

    static void hold(const std::string& name);  // whoever reaches it from now on waits there
    static bool wait_until_held(const std::string& name, std::chrono::nanoseconds timeout);  // a thread waits there
    static void let_pass(const std::string& name);  // those who wait go on, later ones wait
    static void release(const std::string& name);   // those who wait go on, later ones do not wait

private:
    static void wait_at(const char* name);

    static std::atomic<int> held_;  // how many points are held
};

}  // namespace memfabric
