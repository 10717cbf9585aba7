// SPDX-License-Identifier: Apache-2.0
#include "transfer/submissions.h"

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/assertions.h"

namespace memfabric::tests {
namespace {

using namespace std::chrono_literals;

TEST(Submissions, run_in_order_for_a_session_and_beside_each_other_for_several) {
    Submissions submissions;
    std::promise<void> answer;
    const std::shared_future<void> answered(answer.get_future());
    std::vector<int> order;
    ASSERT_EQ(submissions.submit("silent",
                                 [&] {
                                     answered.wait();
                                     order.push_back(1);
                                 }),
              Status::Ok);
    ASSERT_EQ(submissions.submit("silent", [&] { order.push_back(2); }), Status::Ok);
    for (int i = 0; i < 100; ++i) {
        std::promise<void> done;
        ASSERT_EQ(submissions.submit("quick", [&] { done.set_value(); }), Status::Ok);
        ASSERT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
    }
    answer.set_value();
    submissions.close();
    EXPECT_EQ(order, (std::vector{1, 2}));
}

// Each of them is at work before any may end, those of the later sessions once one has ended.
TEST(Submissions, of_more_sessions_than_threads_wait_for_one) {
    Submissions submissions;
    constexpr std::size_t kSessions = Submissions::kMostThreads + 4;
    std::latch all_threads(Submissions::kMostThreads);
    std::promise<void> end;
    const std::shared_future<void> ended(end.get_future());
    std::atomic<std::size_t> at_work{0};
    for (std::size_t i = 0; i < kSessions; ++i) {
        ASSERT_EQ(submissions.submit(std::to_string(i),
                                     [&] {
                                         if (at_work.fetch_add(1) < Submissions::kMostThreads) all_threads.count_down();
                                         ended.wait();
                                     }),
                  Status::Ok);
    }
    all_threads.wait();
    EXPECT_EQ(at_work.load(), Submissions::kMostThreads);
    end.set_value();
    submissions.close();
    EXPECT_EQ(at_work.load(), kSessions);
}

TEST(Submissions, of_one_session_have_one_thread) {
    Submissions submissions;
    std::set<std::thread::id> threads;
    for (int i = 0; i < 200; ++i) {
        std::promise<std::thread::id> ran;  // told before the task has ended: the next one comes while it does
        ASSERT_EQ(submissions.submit("peer", [&] { ran.set_value(std::this_thread::get_id()); }), Status::Ok);
        threads.insert(ran.get_future().get());
    }
    EXPECT_EQ(threads.size(), 1U);
}

TEST(Submissions, that_were_taken_run_before_it_is_closed_and_none_afterwards) {
    Submissions submissions;
    std::promise<void> end;
    std::atomic<int> ran{0};
    ASSERT_EQ(submissions.submit("peer",
                                 [&, ended = std::make_shared<std::future<void>>(end.get_future())] {
                                     ended->wait();
                                     ran.fetch_add(1);
                                 }),
              Status::Ok);
    for (int i = 0; i < 50; ++i) {
        ASSERT_EQ(submissions.submit(i % 2 == 0 ? "peer" : "other", [&] { ran.fetch_add(1); }), Status::Ok);
    }
    std::thread closer([&] { submissions.close(); });
    end.set_value();
    submissions.close();
    closer.join();
    EXPECT_EQ(ran.load(), 51);
    EXPECT_EQ(submissions.submit("peer", [] {}), Status::NotInit);
    EXPECT_TRUE(says("is being destroyed"));
}

}  // namespace
}  // namespace memfabric::tests
