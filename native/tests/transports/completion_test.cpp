// SPDX-License-Identifier: Apache-2.0
#include "transports/completion.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/assertions.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;

TEST(Completion, has_its_outcome_once_it_is_done) {
    Completion completion;
    EXPECT_FALSE(completion.done());
    EXPECT_EQ(completion.wait(0ns), Status::Timeout);
    EXPECT_EQ(completion.wait(1ms), Status::Timeout);
    completion.finish({Status::NotConnected, 7, "gone"});
    EXPECT_TRUE(completion.done());
    EXPECT_EQ(completion.wait(std::nullopt), Status::Ok);
    EXPECT_EQ(completion.outcome().status, Status::NotConnected);
    EXPECT_EQ(completion.outcome().moved_bytes, 7U);
    EXPECT_EQ(completion.outcome().reason, "gone");
}

TEST(Completion, wakes_all_who_wait) {
    Completion completion;
    std::vector<std::thread> waiting;
    std::atomic<int> about_to_wait{0};
    for (int i = 0; i < 4; ++i) {
        waiting.emplace_back([&] {
            ++about_to_wait;
            EXPECT_EQ(completion.wait(std::nullopt), Status::Ok);
        });
    }
    while (about_to_wait < 4) std::this_thread::yield();
    completion.finish({});
    for (std::thread& one : waiting) one.join();
}

// The owner destroys it as soon as its wait returns, while the other thread may still be inside `finish`: the
// sanitizers see what that touches.
TEST(Completion, may_go_as_soon_as_it_was_waited_for) {
    for (int round = 0; round < 500; ++round) {
        auto completion = std::make_unique<Completion>();
        std::thread finisher([inside = completion.get()] { inside->finish({Status::Ok, 1, {}}); });
        if (round % 2 == 0) {
            ASSERT_EQ(completion->wait(std::nullopt), Status::Ok);
        } else {
            while (!completion->done()) std::this_thread::yield();
        }
        completion.reset();
        finisher.join();
    }
}

TEST(Completion, tells_listeners_before_and_after_the_end) {
    Completion completion;
    std::atomic<int> told{0};
    completion.listen([&] { ++told; });
    completion.listen([&] { ++told; });
    EXPECT_EQ(told, 0);
    completion.finish({});
    EXPECT_EQ(told, 2);
    completion.listen([&] { ++told; });
    EXPECT_EQ(told, 3);
}

TEST(Completion, tells_each_listener_once_whoever_comes_first) {
    for (int round = 0; round < 500; ++round) {
        const auto completion = std::make_shared<Completion>();
        std::atomic<int> told{0};
        std::thread finisher([completion] { completion->finish({}); });
        completion->listen([&] { ++told; });
        EXPECT_EQ(completion->wait(std::nullopt), Status::Ok);
        finisher.join();
        ASSERT_EQ(told, 1);
    }
}

}  // namespace
}  // namespace memfabric
