// SPDX-License-Identifier: Apache-2.0
//
// Who calls UCX: whoever waits for a move has the turn, passes it on, and sleeps while nothing happens.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/interruption.h"
#include "base/pause_point.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/threads.h"
#include "tests/transports/far_memory.h"
#include "tests/ucx/other_process.h"
#include "tests/ucx/ucx_fixture.h"
#include "ucx/initiator.h"

namespace memfabric::tests {
namespace {

using UcxTurn = UcxTransport;

// A target that was stopped, and a thread that waits for it with the turn, asleep.
class StoppedTarget {
public:
    StoppedTarget() : way_(UcxTransport::way_to(other_.receive())) {
        // Two connections: nothing is still to come on them once the target is stopped.
        UcxTransport::Begun one(*way_, Direction::Read, own_);
        std::vector<std::byte> another_own(kOtherBytes);
        UcxTransport::Begun another(*way_, Direction::Read, another_own);
        require(one.finish().status == Status::Ok && another.finish().status == Status::Ok && way_->endpoints() == 2);
        ::kill(other_.pid(), SIGSTOP);
    }
    ~StoppedTarget() {
        other_.kill();
        if (waiting_.joinable()) waiting_.join();
    }
    StoppedTarget(const StoppedTarget&) = delete;
    StoppedTarget& operator=(const StoppedTarget&) = delete;

    // `act` happens before the thread can sleep: what it does must wake it.
    void wait_asleep(const std::function<void()>& act) {
        PausePoint::hold(kPoint);
        waiting_ = std::thread(
            [this] { EXPECT_EQ(UcxTransport::move(*way_, Direction::Read, own_).status, Status::NotConnected); });
        require(PausePoint::wait_until_held(kPoint, 30s));
        act();
        PausePoint::release(kPoint);
    }
    ucx::UcxTransport& way() { return *way_; }

private:
    static constexpr char kPoint[] = "ucx.initiator.sleep";

    OtherProcess other_{"serve"};
    std::unique_ptr<ucx::UcxTransport> way_;
    std::vector<std::byte> own_ = std::vector<std::byte>(kOtherBytes);
    std::thread waiting_;
};

TEST_F(UcxTurn, who_waits_for_a_stopped_target_holds_up_nobody) {
    StoppedTarget stopped;
    std::vector<std::byte> source = pattern(kServedBytes, 7);
    std::unique_ptr<Begun> healthy;
    stopped.wait_asleep([&] { healthy = std::make_unique<Begun>(*transport_, Direction::Write, source); });
    EXPECT_EQ(healthy->finish().status, Status::Ok);
    EXPECT_TRUE(same_bytes(memory_, source));
}

TEST_F(UcxTurn, a_cancellation_wakes_whoever_has_the_turn) {
    StoppedTarget stopped;
    std::vector<std::byte> own(kOtherBytes);
    Begun begun(stopped.way(), Direction::Read, own);
    stopped.wait_asleep([&] { stopped.way().cancel(begun.completion); });
    EXPECT_EQ(begun.finish().status, Status::NotStarted);
}

TEST_F(UcxTurn, the_turn_is_passed_on) {
    constexpr char kLeave[] = "ucx.initiator.leave";
    OtherProcess other("serve");
    const std::unique_ptr<ucx::UcxTransport> way_to_other = way_to(other.receive());
    std::vector<std::byte> source = pattern(kServedBytes, 7);
    auto stuck = std::make_unique<StuckTarget>();
    Begun begun(*transport_, Direction::Write, source);
    stuck->reach(*transport_, begun.completion);
    PausePoint::hold(kLeave);
    std::thread leaving([&] {
        std::vector<std::byte> byte(1);
        EXPECT_EQ(move(*way_to_other, Direction::Read, byte).status, Status::Ok);
    });
    EXPECT_TRUE(PausePoint::wait_until_held(kLeave, 30s));  // has begun it
    PausePoint::let_pass(kLeave);
    EXPECT_TRUE(PausePoint::wait_until_held(kLeave, 30s));  // has waited for it
    std::atomic<pid_t> waiter{0};
    std::thread waiting([&] {
        waiter = gettid();
        EXPECT_EQ(begun.finish().status, Status::Ok);
    });
    wait_until_asleep(waiter);
    stuck.reset();
    PausePoint::release(kLeave);
    waiting.join();
    leaving.join();
    EXPECT_TRUE(same_bytes(memory_, source));
}

// Like a program's signal handler: runs when its thread, which waits for a move, looks for the second time.
class MovingHandler final : public Interruption {
public:
    explicit MovingHandler(std::function<void()> what) : Interruption(true), what_(std::move(what)) {}
    int looks = 0;

private:
    bool look() override {
        if (++looks == 2) what_();
        return false;
    }
    std::function<void()> what_;
};

TEST_F(UcxTurn, a_signal_handler_may_move_while_its_thread_waits) {
    std::vector<std::byte> source = pattern(kServedBytes, 5);
    std::vector<std::byte> own(1 << 20);
    auto stuck = std::make_unique<StuckTarget>();
    Begun begun(*transport_, Direction::Write, source);
    stuck->reach(*transport_, begun.completion);
    MovingHandler handler([&] {
        stuck.reset();
        EXPECT_EQ(move(*transport_, Direction::Read, own).status, Status::Ok);
    });
    EXPECT_EQ(begun.finish().status, Status::Ok);
    EXPECT_GE(handler.looks, 2);
    EXPECT_TRUE(same_bytes(memory_, source));
}

TEST_F(UcxTurn, sleeps_while_nothing_happens) {
    std::vector<std::byte> source(4096);
    ASSERT_EQ(move(*transport_, Direction::Write, source).status, Status::Ok);
    const auto before = cpu_time();
    std::this_thread::sleep_for(400ms);
    EXPECT_LT(cpu_time() - before, 100ms);
}

}  // namespace
}  // namespace memfabric::tests
