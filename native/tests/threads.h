// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says of threads: whether one sleeps, and how long those of this process have run.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "tests/assertions.h"

namespace memfabric::tests {

inline bool is_awake(pid_t thread) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string text;
    return std::getline(stat, text) && text.find(") S ") == std::string::npos;
}

// Or until it has ended. `thread` is 0 until the thread has said which it is.
inline void wait_until_asleep(const std::atomic<pid_t>& thread) {
    const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (thread == 0 || is_awake(thread)) {
        require(std::chrono::steady_clock::now() < give_up_at);
        std::this_thread::yield();
    }
}

inline std::chrono::nanoseconds cpu_time() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace memfabric::tests
