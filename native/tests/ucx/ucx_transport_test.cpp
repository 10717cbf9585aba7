// SPDX-License-Identifier: Apache-2.0
//
// What concerns UCX alone, and the ends of processes; tests/transports has what every transport does.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/ucx/other_process.h"
#include "tests/ucx/ucx_fixture.h"
#include "ucx/served_memory.h"
#include "ucx/transport.h"

namespace memfabric::tests {
namespace {

TEST_F(UcxTransport, moves_while_the_targets_program_does_nothing) {
    const OtherProcess other("serve");
    const auto way = way_to(other.receive());
    std::vector<std::byte> own(kOtherBytes);
    EXPECT_EQ(move(*way, Direction::Read, own).status, Status::Ok);
    EXPECT_TRUE(all_are(own, std::byte{0x77}));
    std::vector<std::byte> source = pattern(kOtherBytes, 4);
    EXPECT_EQ(move(*way, Direction::Write, source).moved_bytes, kOtherBytes);
    EXPECT_EQ(move(*way, Direction::Read, own).status, Status::Ok);
    EXPECT_TRUE(same_bytes(own, source));
}

TEST_F(UcxTransport, a_target_that_was_killed_fails_its_moves_and_no_others) {
    OtherProcess other("serve");
    const auto way = way_to(other.receive());
    std::vector<std::byte> own(kOtherBytes);
    EXPECT_EQ(move(*way, Direction::Read, own).status, Status::Ok);
    kill(other.pid(), SIGSTOP);  // it certainly does not end before it is killed
    Begun lost(*way, Direction::Read, own);
    std::vector<std::byte> source = pattern(kServedBytes, 6);
    Begun healthy(*transport_, Direction::Write, source);
    other.kill();
    EXPECT_EQ(lost.finish().status, Status::NotConnected);
    EXPECT_TRUE(contains(lost.completion.outcome().reason, "its process has ended"));
    EXPECT_EQ(healthy.finish().status, Status::Ok);
    EXPECT_TRUE(same_bytes(memory_, source));
}

TEST_F(UcxTransport, an_initiator_that_was_killed_harms_no_others) {
    OtherProcess other("write");
    other.send(served_->for_initiators());
    other.await_word();  // it goes on writing
    other.kill();
    std::vector<std::byte> source = pattern(kServedBytes, 8);
    EXPECT_EQ(move(*transport_, Direction::Write, source).status, Status::Ok);
    std::vector<std::byte> own(kServedBytes);
    EXPECT_EQ(move(*transport_, Direction::Read, own).status, Status::Ok);
    EXPECT_TRUE(same_bytes(own, source));
}

TEST_F(UcxTransport, the_end_of_a_target_is_seen_though_it_has_forked) {
    OtherProcess other("serve_and_fork");
    const auto way = way_to(other.receive());
    std::vector<std::byte> own(kOtherBytes);
    EXPECT_EQ(move(*way, Direction::Read, own).status, Status::Ok);
    other.say_word();
    other.await_word();  // its child lives until this test ends
    kill(other.pid(), SIGSTOP);
    Begun lost(*way, Direction::Read, own);
    other.kill();
    EXPECT_EQ(lost.finish().status, Status::NotConnected);
}

TEST_F(UcxTransport, a_target_may_exit_while_it_serves) {
    for (int round = 0; round < 3; ++round) {
        OtherProcess other("serve_and_exit");
        const auto way = way_to(other.receive());
        std::vector<std::byte> own(kOtherBytes);
        std::atomic<bool> moved{false};
        std::thread writing([&] {
            while (move(*way, Direction::Write, own).status == Status::Ok) moved = true;
        });
        while (!moved) std::this_thread::yield();
        other.say_word();
        EXPECT_EQ(other.await_exit(), kExitCode);
        writing.join();
    }
}

// Two regions side by side, a third one elsewhere; connections are there before they are.
TEST_F(UcxTransport, reaches_memory_that_was_added) {
    constexpr std::size_t kPart = std::size_t{3} << 20;
    std::unique_ptr<ucx::ServedMemory> served;
    require_ok(ucx::ServedMemory::serve(memory_.data(), kPart, ucx_over_loopback(), served));
    const auto way = way_to(served->for_initiators());
    std::vector<std::byte> own = pattern(kPart, 1);
    EXPECT_EQ(move(*way, Direction::Write, own).status, Status::Ok);
    std::vector<std::byte> both = pattern(2 * kPart, 2);
    EXPECT_EQ(move(*way, Direction::Write, both).status, Status::InvalidParam);
    require_ok(served->add(memory_.data() + 10 * kPart, kPart));
    require_ok(served->add(memory_.data() + kPart, kPart));
    way->grow(served->for_initiators());
    EXPECT_EQ(move(*way, Direction::Write, both).moved_bytes, 2 * kPart);
    EXPECT_TRUE(same_bytes(both, std::span(memory_).first(2 * kPart)));
    fill(both, 3);
    EXPECT_EQ(move(*way, Direction::Read, both).status, Status::Ok);
    EXPECT_TRUE(same_bytes(both, std::span(memory_).first(2 * kPart)));
    std::vector<std::byte> more(2 * kPart + 1);
    const Outcome outcome = move(*way, Direction::Read, more);
    EXPECT_EQ(outcome.status, Status::InvalidParam);
    EXPECT_TRUE(contains(outcome.reason, "not all inside the memory that is registered there"));
}

// Which of two versions understand each other is UCX's business.
TEST_F(UcxTransport, another_version_works_or_is_named) {
    const char* library = std::getenv("MF_UCX_OTHER_LIBRARY");
    const OtherProcess other("serve", library == nullptr ? "" : library);
    const auto way = way_to(other.receive());
    std::vector<std::byte> own(kOtherBytes);
    const Outcome outcome = move(*way, Direction::Read, own);
    if (way->memory()->version == ucx::Library::loaded()->version()) {
        EXPECT_EQ(outcome.status, Status::Ok);
    } else if (outcome.status != Status::Ok) {
        EXPECT_EQ(outcome.status, Status::NotConnected);
        EXPECT_TRUE(contains(outcome.reason, "it has UCX " + way->memory()->version));
    }
}

TEST_F(UcxTransport, what_a_stuck_target_does_not_answer_can_be_cancelled) {
    for (const Direction direction : {Direction::Read, Direction::Write}) {
        std::vector<std::byte> own(kServedBytes, std::byte{1});
        const StuckTarget stuck;
        Begun begun(*transport_, direction, own);
        stuck.reach(*transport_, begun.completion);
        begun.transport.cancel(begun.completion);
        const Outcome& outcome = begun.finish();
        EXPECT_EQ(outcome.status, Status::NotStarted);
        EXPECT_TRUE(contains(outcome.reason, "it was ended early"));
        EXPECT_LT(outcome.moved_bytes, kServedBytes);
        EXPECT_EQ(outcome.may_have_touched_more, direction == Direction::Write);
        EXPECT_EQ(transport_->endpoints(), 0U);  // what is under way on it cannot be called back otherwise
    }
    std::vector<std::byte> source = pattern(kServedBytes, 2);
    EXPECT_EQ(move(*transport_, Direction::Write, source).status, Status::Ok);
    EXPECT_TRUE(same_bytes(memory_, source));
}

TEST_F(UcxTransport, a_cancelled_move_says_what_it_has_moved) {
    std::vector<std::byte> source = pattern(kServedBytes, 2);
    Begun begun(*transport_, Direction::Write, source);
    begun.transport.cancel(begun.completion);
    const Outcome& outcome = begun.finish();
    EXPECT_EQ(outcome.status, Status::NotStarted);
    EXPECT_EQ(outcome.reason, "it was ended early");
    EXPECT_FALSE(outcome.may_have_touched_more);
    EXPECT_LT(outcome.moved_bytes, kServedBytes);
    const std::span written(memory_);
    EXPECT_TRUE(same_bytes(written.first(outcome.moved_bytes), std::span(source).first(outcome.moved_bytes)));
    EXPECT_TRUE(all_are(written.subspan(outcome.moved_bytes), std::byte{0}));
    EXPECT_EQ(transport_->endpoints(), 1U);  // ready for the next
}

TEST_F(UcxTransport, says_when_nothing_moves) {
    std::vector<std::byte> own(kServedBytes);
    const StuckTarget stuck;
    Begun begun(*transport_, Direction::Read, own);
    stuck.reach(*transport_, begun.completion);
    const auto give_up_at = Clock::now() + 30s;
    bool moves = true;
    while (moves && Clock::now() < give_up_at) moves = transport_->progress(begun.completion, Clock::now() + 50ms);
    EXPECT_FALSE(moves);
    begun.transport.cancel(begun.completion);
    EXPECT_EQ(begun.finish().status, Status::NotStarted);
}

TEST_F(UcxTransport, memory_that_is_served_no_more_is_not_touched) {
    std::atomic<bool> over{false};
    std::atomic<int> failures{0};
    std::atomic<bool> moved{false};
    std::vector<std::byte> source(kServedBytes, std::byte{0x11});
    std::thread writing([&] {
        while (!over) {
            const Outcome outcome = move(*transport_, Direction::Write, source);
            if (outcome.status != Status::Ok) ++failures;
            moved = true;
        }
    });
    while (!moved) std::this_thread::yield();
    served_.reset();
    std::memset(memory_.data(), 0x55, memory_.size());
    const auto give_up_at = Clock::now() + 30s;
    while (failures < 20 && Clock::now() < give_up_at) std::this_thread::yield();
    EXPECT_GE(failures, 20);
    over = true;
    writing.join();
    EXPECT_TRUE(all_are(memory_, std::byte{0x55}));
}

TEST_F(UcxTransport, ends_with_moves_under_way) {
    for (int round = 0; round < 5; ++round) {
        std::vector<std::byte> own(kServedBytes);
        // Connected: nobody drives what has begun, so a connection would stay half made, which UCX does not bear.
        ASSERT_EQ(move(*transport_, Direction::Read, own).status, Status::Ok);
        Begun begun(*transport_, round % 2 == 0 ? Direction::Read : Direction::Write, own);
        served_.reset();
        EXPECT_EQ(begun.finish().status, Status::NotConnected);
        require_ok(ucx::ServedMemory::serve(memory_.data(), memory_.size(), ucx_over_loopback(), served_));
        transport_ = way_to(served_->for_initiators());
    }
}

TEST_F(UcxTransport, a_forked_child_is_told_and_harms_nothing) {
    std::vector<std::byte> source = pattern(kServedBytes, 3);
    ASSERT_EQ(move(*transport_, Direction::Write, source).status, Status::Ok);
    const pid_t child = fork();
    if (child == 0) {
        const Outcome outcome = move(*transport_, Direction::Write, source);
        bool fine = outcome.status == Status::NotConnected && outcome.reason.find("forked") != std::string::npos;
        std::unique_ptr<ucx::ServedMemory> other;
        fine &= ucx::ServedMemory::serve(memory_.data(), 4096, ucx_over_loopback(), other) == Status::NoResources;
        fine &= take_last_error().find("forked") != std::string::npos;
        transport_.reset();
        served_.reset();
        _exit(fine ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    source = pattern(kServedBytes, 4);
    EXPECT_EQ(move(*transport_, Direction::Write, source).status, Status::Ok);
    EXPECT_TRUE(same_bytes(memory_, source));
}

TEST_F(UcxTransport, leaves_no_descriptors_and_no_threads) {
    const auto count = [](const char* folder) {
        std::filesystem::directory_iterator entries(folder);
        return std::distance(begin(entries), end(entries));
    };
    transport_.reset();
    served_.reset();
    const auto descriptors = count("/proc/self/fd");
    const auto threads = count("/proc/self/task");
    for (int round = 0; round < 3; ++round) {
        require_ok(ucx::ServedMemory::serve(memory_.data(), memory_.size(), ucx_over_loopback(), served_));
        transport_ = way_to(served_->for_initiators());
        std::vector<std::byte> own(4096);
        EXPECT_EQ(move(*transport_, Direction::Write, own).status, Status::Ok);
        served_.reset();
        const auto attempts_begin = Clock::now();
        const auto before = count("/proc/self/fd");
        for (int attempt = 0; attempt < 50; ++attempt) {
            EXPECT_EQ(move(*transport_, Direction::Write, own).status, Status::NotConnected);
        }
        const std::ptrdiff_t most = (Clock::now() - attempts_begin) / 1s + 1;  // one attempt in a second
        EXPECT_LE(count("/proc/self/fd") - before, most);
        transport_.reset();
    }
    EXPECT_EQ(count("/proc/self/fd"), descriptors);
    EXPECT_EQ(count("/proc/self/task"), threads);
}

TEST_F(UcxTransport, a_process_has_one_choice_of_devices) {
    std::unique_ptr<ucx::ServedMemory> other;
    EXPECT_EQ(ucx::ServedMemory::serve(memory_.data(), 4096, {"tcp", "all"}, other), Status::ResourceInUse);
    EXPECT_TRUE(says("a process has one choice"));
}

TEST_F(UcxTransport, names_devices_that_it_does_not_have) {
    transport_.reset();
    served_.reset();
    EXPECT_EQ(ucx::ServedMemory::serve(memory_.data(), 4096, {"tcp", "nosuch0"}, served_), Status::NoResources);
    EXPECT_TRUE(says("nosuch0"));
}

}  // namespace
}  // namespace memfabric::tests
