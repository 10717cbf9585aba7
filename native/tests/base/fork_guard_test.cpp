// SPDX-License-Identifier: Apache-2.0
#include "base/fork_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/assertions.h"
#include "tests/threads.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

TEST(NoForks, no_child_finds_a_step_half_done) {
    std::atomic<bool> half_done{false};
    std::atomic<pid_t> forking{0};
    int status = -1;
    {
        std::thread forker;
        {
            const NoForks whole;
            half_done = true;
            forker = std::thread([&] {
                forking = gettid();
                const pid_t child = fork();
                if (child == 0) _exit(half_done ? 1 : 0);
                waitpid(child, &status, 0);
            });
            wait_until_asleep(forking);  // waiting for us; or for its child, if forks do not wait
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
