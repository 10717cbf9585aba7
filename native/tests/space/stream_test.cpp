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

#include "base/last_error.h"
#include "tests/check.h"

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

TEST(stream_runs_in_order) {
    const auto stream = Stream::make();
    std::vector<int> order;
    for (int i = 0; i < 100; ++i) {
        std::uint64_t sequence = 0;
        REQUIRE_EQ(stream->submit(
                       [&order, i] {
                           order.push_back(i);
                           return Status::Ok;
                       },
                       sequence),
                   Status::Ok);
        CHECK_EQ(sequence, static_cast<std::uint64_t>(i) + 1);
    }
    CHECK_EQ(stream->wait(), Status::Ok);
    CHECK_EQ(stream->submitted(), std::uint64_t{100});
    CHECK_EQ(stream->completed(), std::uint64_t{100});
    REQUIRE_EQ(order.size(), std::size_t{100});
    for (int i = 0; i < 100; ++i) CHECK_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(stream_wait_returns_the_first_failure_once_and_later_work_runs) {
    const auto stream = Stream::make();
    std::atomic<bool> ran{false};
    CHECK_EQ(submit(*stream, [] { return fail(Status::NotConnected, "first"); }), Status::Ok);
    CHECK_EQ(submit(*stream, [] { return fail(Status::InvalidParam, "second"); }), Status::Ok);
    CHECK_EQ(submit(*stream,
                    [&ran] {
                        ran = true;
                        return Status::Ok;
                    }),
             Status::Ok);
    CHECK_EQ(stream->wait_for(3), Status::Ok);
    CHECK_EQ(stream->first_failure().sentence, "first");
    set_last_error("");
    CHECK_EQ(stream->wait(), Status::NotConnected);
    CHECK_EQ(take_last_error(), "first");
    CHECK(ran);
    CHECK_EQ(stream->wait(), Status::Ok);
    CHECK_EQ(last_error(), "");
}

TEST(stream_wait_times_out) {
    const auto stream = Stream::make();
    std::promise<void> go_on;
    CHECK_EQ(submit(*stream,
                    [&go_on] {
                        go_on.get_future().wait();
                        return Status::Ok;
                    }),
             Status::Ok);
    CHECK_EQ(stream->wait(10ms), Status::Timeout);
    CHECK(take_last_error().find("0 of 1") != std::string::npos);
    go_on.set_value();
    CHECK_EQ(stream->wait(10s), Status::Ok);
}

TEST(stream_handles_are_found_until_closed) {
    auto first = Stream::make();
    const auto second = Stream::make();
    CHECK(first->handle() != 0 && first->handle() != second->handle());
    CHECK(Stream::find(first->handle()) == first);
    CHECK(Stream::find(0) == nullptr);
    const std::uint64_t handle = first->handle();
    first.reset();
    CHECK(Stream::find(handle) == nullptr);
    CHECK(second->close() == Status::Ok);
    CHECK(Stream::find(second->handle()) == nullptr);
    CHECK_EQ(submit(*second, [] { return Status::Ok; }), Status::InvalidParam);
}

TEST(stream_close_finishes_what_was_submitted) {
    std::atomic<int> ran{0};
    {
        const auto stream = Stream::make();
        for (int i = 0; i < 50; ++i) {
            CHECK_EQ(submit(*stream,
                            [&ran] {
                                ++ran;
                                return Status::Ok;
                            }),
                     Status::Ok);
        }
    }
    CHECK_EQ(ran.load(), 50);
}

TEST(stream_notify_fd_rings_when_the_sequence_is_reached) {
    const auto stream = Stream::make();
    std::promise<void> go_on;
    CHECK_EQ(submit(*stream, [] { return Status::Ok; }), Status::Ok);
    CHECK_EQ(submit(*stream,
                    [&go_on] {
                        go_on.get_future().wait();
                        return Status::Ok;
                    }),
             Status::Ok);
    int first = -1;
    int second = -1;
    int abandoned = -1;
    REQUIRE_EQ(stream->notify_fd(1, first), Status::Ok);
    REQUIRE_EQ(stream->notify_fd(2, second), Status::Ok);
    REQUIRE_EQ(stream->notify_fd(2, abandoned), Status::Ok);
    ::close(abandoned);
    CHECK(readable(first, 5000));
    CHECK(!readable(second, 20));
    go_on.set_value();
    CHECK(readable(second, 5000));
    int late = -1;
    REQUIRE_EQ(stream->notify_fd(2, late), Status::Ok);
    CHECK(readable(late, 0));
    for (const int fd : {first, second, late}) ::close(fd);
}

TEST(stream_in_a_forked_child_fails_instead_of_hanging) {
    const auto stream = Stream::make();
    CHECK_EQ(submit(*stream, [] { return Status::Ok; }), Status::Ok);
    CHECK_EQ(stream->wait(), Status::Ok);
    const pid_t child = fork();
    if (child == 0) {
        alarm(5);
        const bool failed =
            submit(*stream, [] { return Status::Ok; }) == Status::NotInit && stream->wait() == Status::NotInit;
        CHECK(stream->close() == Status::Ok);
        _exit(failed ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace memfabric
