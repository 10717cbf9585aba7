// SPDX-License-Identifier: Apache-2.0
#include "space/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/cancellation.h"
#include "base/last_error.h"
#include "tests/assertions.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;

Status submit(Stream& stream, Stream::Task task) {
    std::uint64_t sequence = 0;
    return stream.submit(std::move(task), sequence);
}

bool readable(int fd, int timeout_ms) {
    pollfd poll_fd{fd, POLLIN, 0};
    return poll(&poll_fd, 1, timeout_ms) == 1;
}

TEST(Stream, runs_in_order) {
    const auto stream = Stream::make();
    std::vector<int> order;
    for (int i = 0; i < 100; ++i) {
        std::uint64_t sequence = 0;
        ASSERT_EQ(stream->submit(
                      [&order, i] {
                          order.push_back(i);
                          return Status::Ok;
                      },
                      sequence),
                  Status::Ok);
        EXPECT_EQ(sequence, static_cast<std::uint64_t>(i) + 1);
    }
    EXPECT_EQ(stream->wait(), Status::Ok);
    EXPECT_EQ(stream->submitted(), std::uint64_t{100});
    EXPECT_EQ(stream->completed(), std::uint64_t{100});
    ASSERT_EQ(order.size(), std::size_t{100});
    for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// The first task runs, the second has not begun, the third was submitted after the cancellation.
TEST(Stream, cancel_ends_what_runs_and_what_waits_and_nothing_else) {
    const auto stream = Stream::make();
    std::promise<void> begun;
    std::atomic<int> ran{0};
    const auto cancellable = [](Stream::Task work) { return [work] { return Stream::run_cancellable(work); }; };
    ASSERT_EQ(submit(*stream, cancellable([&] {
                  begun.set_value();
                  while (!Cancellation::requested()) std::this_thread::yield();
                  return Status::Interrupted;
              })),
              Status::Ok);
    const auto count = [&ran] {
        ++ran;
        return Status::Ok;
    };
    ASSERT_EQ(submit(*stream, cancellable(count)), Status::Ok);
    begun.get_future().wait();
    std::atomic<bool> told{false};
    ASSERT_EQ(stream->listen(2, [&told] { told = true; }), Status::Ok);
    stream->cancel(2);
    ASSERT_EQ(submit(*stream, cancellable(count)), Status::Ok);
    EXPECT_EQ(stream->wait(), Status::PartialFailed);
    EXPECT_TRUE(told);
    EXPECT_EQ(ran, 1);
    stream->cancel(100);  // of what is not there yet: nothing
    ASSERT_EQ(submit(*stream, cancellable(count)), Status::Ok);
    EXPECT_EQ(stream->wait(), Status::Ok);
}

TEST(Stream, wait_returns_the_first_failure_once_and_later_work_runs) {
    const auto stream = Stream::make();
    std::atomic<bool> ran{false};
    EXPECT_EQ(submit(*stream, [] { return fail(Status::NotConnected, "first"); }), Status::Ok);
    EXPECT_EQ(submit(*stream, [] { return fail(Status::InvalidParam, "second"); }), Status::Ok);
    EXPECT_EQ(submit(*stream,
                     [&ran] {
                         ran = true;
                         return Status::Ok;
                     }),
              Status::Ok);
    EXPECT_EQ(stream->wait_for(3), Status::Ok);
    EXPECT_EQ(stream->first_failure().sentence, "first");
    set_last_error("");
    EXPECT_EQ(stream->wait(), Status::NotConnected);
    EXPECT_EQ(take_last_error(), "first");
    EXPECT_TRUE(ran);
    EXPECT_EQ(stream->wait(), Status::Ok);
    EXPECT_EQ(last_error(), "");
}

TEST(Stream, wait_times_out) {
    const auto stream = Stream::make();
    std::promise<void> go_on;
    EXPECT_EQ(submit(*stream,
                     [&go_on] {
                         go_on.get_future().wait();
                         return Status::Ok;
                     }),
              Status::Ok);
    EXPECT_EQ(stream->wait(10ms), Status::Timeout);
    EXPECT_TRUE(tests::says("0 of 1"));
    go_on.set_value();
    EXPECT_EQ(stream->wait(10s), Status::Ok);
}

TEST(Stream, handles_are_found_until_closed) {
    auto first = Stream::make();
    const auto second = Stream::make();
    EXPECT_TRUE(first->handle() != 0 && first->handle() != second->handle());
    EXPECT_EQ(Stream::find(first->handle()), first);
    EXPECT_EQ(Stream::find(0), nullptr);
    const std::uint64_t handle = first->handle();
    first.reset();
    EXPECT_EQ(Stream::find(handle), nullptr);
    EXPECT_EQ(second->close(), Status::Ok);
    EXPECT_EQ(Stream::find(second->handle()), nullptr);
    EXPECT_EQ(submit(*second, [] { return Status::Ok; }), Status::InvalidParam);
}

TEST(Stream, close_finishes_what_was_submitted) {
    std::atomic<int> ran{0};
    {
        const auto stream = Stream::make();
        for (int i = 0; i < 50; ++i) {
            EXPECT_EQ(submit(*stream,
                             [&ran] {
                                 ++ran;
                                 return Status::Ok;
                             }),
                      Status::Ok);
        }
    }
    EXPECT_EQ(ran.load(), 50);
}

TEST(Stream, notify_fd_rings_when_the_sequence_is_reached) {
    const auto stream = Stream::make();
    std::promise<void> go_on;
    EXPECT_EQ(submit(*stream, [] { return Status::Ok; }), Status::Ok);
    EXPECT_EQ(submit(*stream,
                     [&go_on] {
                         go_on.get_future().wait();
                         return Status::Ok;
                     }),
              Status::Ok);
    int first = -1;
    int second = -1;
    int abandoned = -1;
    ASSERT_EQ(stream->notify_fd(1, first), Status::Ok);
    ASSERT_EQ(stream->notify_fd(2, second), Status::Ok);
    ASSERT_EQ(stream->notify_fd(2, abandoned), Status::Ok);
    ::close(abandoned);
    EXPECT_TRUE(readable(first, 5000));
    EXPECT_FALSE(readable(second, 20));
    go_on.set_value();
    EXPECT_TRUE(readable(second, 5000));
    int late = -1;
    ASSERT_EQ(stream->notify_fd(2, late), Status::Ok);
    EXPECT_TRUE(readable(late, 0));
    for (const int fd : {first, second, late}) ::close(fd);
}

TEST(Stream, in_a_forked_child_fails_instead_of_hanging) {
    const auto stream = Stream::make();
    EXPECT_EQ(submit(*stream, [] { return Status::Ok; }), Status::Ok);
    EXPECT_EQ(stream->wait(), Status::Ok);
    const pid_t child = fork();
    if (child == 0) {
        alarm(5);
        const bool failed =
            submit(*stream, [] { return Status::Ok; }) == Status::NotInit && stream->wait() == Status::NotInit;
        const bool closed = stream->close() == Status::Ok;
        _exit(failed && closed ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace memfabric
