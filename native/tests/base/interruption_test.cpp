// SPDX-License-Identifier: Apache-2.0
#include "base/interruption.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "base/pause_point.h"
#include "space/stream.h"
#include "tests/assertions.h"
#include "tests/collectives/host_world.h"

namespace memfabric::tests {
namespace {

// Ends the waits of its thread from the `nth` look on; `meanwhile` runs at that look.
class Handler final : public Interruption {
public:
    explicit Handler(
        int nth, std::function<void()> meanwhile = [] {})
        : Interruption(true), left_(nth), meanwhile_(std::move(meanwhile)) {}
    int looks = 0;

private:
    bool look() override {
        ++looks;
        if (--left_ == 0) meanwhile_();
        return left_ <= 0;
    }
    int left_;
    std::function<void()> meanwhile_;
};

constexpr std::chrono::nanoseconds kMinutes = std::chrono::minutes(5);

}  // namespace

TEST(Interruption, concerns_its_own_thread_only) {
    EXPECT_FALSE(Interruption::possible());
    const Handler handler(1);
    EXPECT_TRUE(Interruption::possible());
    EXPECT_TRUE(Interruption::requested());
    std::thread([] { EXPECT_FALSE(Interruption::requested()); }).join();
    EXPECT_LE(Interruption::slice(kMinutes), std::chrono::milliseconds(100));  // handlers run within that
}

TEST(Interruption, can_be_deferred) {
    Handler handler(1);
    {
        const DeferredInterruption deferred;
        EXPECT_FALSE(Interruption::requested());
        EXPECT_EQ(handler.looks, 1);
    }
    EXPECT_TRUE(Interruption::requested());
}

TEST(Interruption, interrupted_barrier_has_not_happened) {
    const HostWorld world(2);
    {
        Handler handler(2);
        EXPECT_EQ(world.groups[0]->barrier(kMinutes, nullptr), Status::Interrupted);
        EXPECT_EQ(handler.looks, 2);
    }
    world.run([&](std::uint32_t rank) { EXPECT_EQ(world.groups[rank]->barrier(kLong, nullptr), Status::Ok); });
}

TEST(Interruption, interrupted_gather_that_completed_is_delivered_by_the_next_call) {
    const HostWorld world(2);
    std::array<std::array<std::uint64_t, 2>, 2> theirs{};
    std::array<std::array<std::uint64_t, 2>, 2> ours{};
    const auto gather = [&](std::uint32_t rank, std::uint64_t round, auto& all, std::chrono::nanoseconds timeout) {
        const auto mine = letter(rank, round);
        return world.groups[rank]->all_gather(reinterpret_cast<const std::byte*>(mine.data()), sizeof mine,
                                              reinterpret_cast<std::byte*>(all.data()), timeout, nullptr);
    };
    {
        const Handler handler(1,
                              [&] { std::thread([&] { EXPECT_EQ(gather(1, 7, theirs, kLong), Status::Ok); }).join(); });
        EXPECT_EQ(gather(0, 7, ours, kMinutes), Status::Interrupted);
    }
    EXPECT_EQ(theirs[0], letter(0, 7));
    EXPECT_EQ(gather(0, 7, ours, kLong), Status::Ok);  // nobody else comes
    EXPECT_EQ(ours, theirs);
    world.run([&](std::uint32_t rank) { EXPECT_EQ(gather(rank, 8, rank == 0 ? ours : theirs, kLong), Status::Ok); });
    EXPECT_EQ(ours[1], letter(1, 8));
}

TEST(Interruption, interrupted_wait_for_a_turn_leaves_it_to_its_owner) {
    const HostWorld world(2);
    std::thread waiting([&] { EXPECT_EQ(world.groups[0]->barrier(kLong, nullptr), Status::Ok); });
    world.wait_for_arrivals(1);
    {
        const Handler handler(1);
        EXPECT_EQ(world.groups[0]->barrier(kMinutes, nullptr), Status::Interrupted);
    }
    EXPECT_EQ(world.groups[1]->barrier(kLong, nullptr), Status::Ok);
    waiting.join();
}

TEST(Interruption, interrupted_stream_goes_on) {
    const auto stream = Stream::make();
    PausePoint::hold("stream.before_task");
    std::uint64_t sequence = 0;
    EXPECT_EQ(stream->submit([] { return fail(Status::NoResources, "as planned"); }, sequence), Status::Ok);
    {
        const Handler handler(1);
        EXPECT_EQ(stream->wait(), Status::Interrupted);
        EXPECT_EQ(stream->wait(kMinutes), Status::Interrupted);
        EXPECT_EQ(stream->close(), Status::Interrupted);
    }
    PausePoint::release("stream.before_task");
    EXPECT_EQ(stream->wait(), Status::NoResources);  // the failure was not forgotten
    EXPECT_EQ(stream->close(), Status::Ok);
}

}  // namespace memfabric::tests
