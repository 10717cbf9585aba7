// SPDX-License-Identifier: Apache-2.0
#include "base/fork_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/assertions.h"

namespace memfabric {
namespace {

TEST(NoForks, no_child_finds_a_step_half_done) {
    std::atomic<bool> half_done{false};
    std::atomic<bool> forks{false};
    int status = -1;
    {
        std::thread forker;
        {
            const NoForks whole;
            half_done = true;
            forker = std::thread([&] {
                forks = true;
                const pid_t child = fork();
                if (child == 0) _exit(half_done ? 1 : 0);
                waitpid(child, &status, 0);
            });
            while (!forks) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which a fork that does not wait is over
            half_done = false;
        }
        forker.join();
    }
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(NoForks, a_child_may_use_it_as_well) {
    {
        const NoForks whole;
    }
    const pid_t child = fork();
    if (child == 0) {
        const NoForks whole;
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace memfabric
