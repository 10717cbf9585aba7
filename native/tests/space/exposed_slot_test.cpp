// SPDX-License-Identifier: Apache-2.0
//
// A rank's own memory, as members of other hosts reach it, and news that copies ask for.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "space/space.h"
#include "tcp/listener.h"
#include "tcp/transport.h"
#include "tests/assertions.h"
#include "tests/space/space_fixture.h"
#include "transports/routed_batch.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

// The space of rank 0, and somebody who moves bytes in it over TCP.
struct Initiator {
    World world;
    std::unique_ptr<tcp::Listener> listener;
    std::unique_ptr<tcp::TcpTransport> transport;
    std::vector<std::byte> own = std::vector<std::byte>(kMiB, std::byte{7});

    Initiator() {
        require_ok(tcp::Listener::open({"127.0.0.1", 0}, 0, nullptr, listener));
        Connect connect{};
        require_ok(world.space->serve(connect));
        tcp::Target target;
        require_ok(tcp::Target::make(listener->address(), connect, nullptr, target));
        transport = std::make_unique<tcp::TcpTransport>(target);
    }

    Outcome write(std::uintptr_t address, std::size_t size_bytes) {
        RoutedBatch batch;
        batch.add(*transport, Direction::Write, {reinterpret_cast<std::byte*>(address), own.data(), size_bytes});
        return batch.run([] { return Status::Ok; }, 20s);
    }
};

TEST(ExposedSlot, is_served_while_it_is_exposed) {
    Initiator initiator;
    Space& space = *initiator.world.space;
    const std::uintptr_t address = initiator.world.dram(0);
    EXPECT_EQ(initiator.write(address, 64).status, Status::InvalidParam) << "it has not been exposed";
    space.expose();
    EXPECT_EQ(initiator.write(address, kMiB).status, Status::Ok);
    EXPECT_EQ(byte_at(address + kMiB - 1), std::byte{7});
    EXPECT_EQ(initiator.write(initiator.world.hbm(0), 64).status, Status::Ok);
    space.conceal();
    EXPECT_EQ(initiator.write(address, 64).status, Status::InvalidParam);
    space.expose();
    EXPECT_EQ(initiator.write(address, 64).status, Status::Ok);
    EXPECT_EQ(space.shut(Status::NotConnected, "evicted"), Status::Ok);
    EXPECT_EQ(initiator.write(address, 64).status, Status::InvalidParam);
}

TEST(ExposedSlot, is_all_that_is_served) {
    Initiator initiator;
    initiator.world.space->expose();
    const std::uintptr_t end = initiator.world.dram(0) + World::kHeld;
    const std::uintptr_t elsewhere = reinterpret_cast<std::uintptr_t>(initiator.world.plain.data());
    for (const std::uintptr_t address : {end - 63, end, initiator.world.dram(1), elsewhere, std::uintptr_t{1} << 46}) {
        EXPECT_EQ(initiator.write(address, 64).status, Status::InvalidParam) << std::hex << address;
    }
    EXPECT_EQ(byte_at(end - 1), std::byte{0});
    EXPECT_EQ(initiator.world.plain[0], std::byte{0x5a});
}

TEST(ExposedSlot, has_one_secret) {
    Initiator initiator;
    Connect again{};
    EXPECT_EQ(initiator.world.space->serve(again), Status::Ok);
    EXPECT_EQ(again.target, initiator.transport->target().connect.target);
    EXPECT_EQ(again.secret, initiator.transport->target().connect.secret);
}

TEST(ExposedSlot, may_go_while_others_write_into_it) {
    for (int round = 0; round < 10; ++round) {
        Initiator initiator;
        Space& space = *initiator.world.space;
        space.expose();
        std::atomic<bool> has_written{false};
        Outcome last;
        std::thread writer([&] {
            while ((last = initiator.write(initiator.world.dram(0), kMiB)).status == Status::Ok) has_written = true;
        });
        while (!has_written) std::this_thread::yield();
        if (round % 2 == 0) {
            space.conceal();
            std::memset(&byte_at(initiator.world.dram(0)), 1, kMiB);
            EXPECT_EQ(byte_at(initiator.world.dram(0)), std::byte{1}) << "nobody writes any more";
        }
        space.close();
        writer.join();
        EXPECT_TRUE(last.status == Status::InvalidParam || last.status == Status::NotConnected) << last.reason;
    }
}

TEST(CatchUp, is_asked_for_by_copies_that_meet_a_rank_which_has_not_come) {
    World world;
    int asked = 0;
    world.space->set_catch_up(
        [&](const std::vector<std::uint32_t>& ranks) {
            EXPECT_EQ(ranks, std::vector<std::uint32_t>{3});
            if (++asked > 1) world.attach(3);
            return Status::Ok;
        },
        false);
    EXPECT_EQ(world.space->copy(world.local(), world.dram(3), 64, kL2G), Status::NotConnected);
    EXPECT_EQ(last_error(), "bm object 7: rank 3 has not joined; wait until it has");
    EXPECT_EQ(world.space->copy(world.local(), world.dram(3), 64, kL2G), Status::Ok);
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(byte_at(world.dram(3)), std::byte{0x5a});
    EXPECT_EQ(world.space->copy(world.local(), world.dram(3) + World::kHeld, 64, kL2G), Status::InvalidParam);
    EXPECT_EQ(world.space->copy(world.local(), 1, 64, kL2G), Status::InvalidParam);
    EXPECT_EQ(asked, 2) << "what is known is known";
}

TEST(CatchUp, serves_queued_copies_and_batches) {
    World world;
    int asked = 0;
    world.space->set_catch_up(
        [&](const std::vector<std::uint32_t>&) {
            if (++asked == 1) world.attach(3);
            return Status::Ok;
        },
        false);
    EXPECT_EQ(world.space->copy(world.local(), world.dram(3), 64, kL2G, 1), Status::Ok);
    EXPECT_EQ(world.space->wait(), Status::Ok);
    EXPECT_EQ(world.space->detach(3), Status::Ok);
    const std::vector<std::uint64_t> sources(2, world.local()), targets{world.dram(1), world.dram(3)}, sizes(2, 8);
    EXPECT_EQ(world.space->copy_batch({sources, targets, sizes}, 2, kL2G), Status::NotConnected);
    EXPECT_EQ(asked, 1) << "it came and went: that is known";
}

TEST(CatchUp, is_asked_for_all_ranks_of_a_batch_at_once) {
    World world;
    std::vector<std::vector<std::uint32_t>> asked;
    const auto ask = [&](const std::vector<std::uint32_t>& ranks) {
        asked.push_back(ranks);
        for (const std::uint32_t rank : ranks) world.attach(rank);
        return Status::Ok;
    };
    world.space->set_catch_up(ask, true);
    EXPECT_EQ(world.space->detach(2), Status::Ok);
    const std::vector<std::uint64_t> sources(4, world.local()), sizes(4, 8);
    const std::vector<std::uint64_t> targets{world.dram(2), world.dram(1), world.dram(3), world.dram(2) + 8};
    EXPECT_EQ(world.space->copy_batch({sources, targets, sizes}, 4, kL2G), Status::Ok);
    EXPECT_EQ(asked, (std::vector<std::vector<std::uint32_t>>{{2, 3}}));
    EXPECT_EQ(world.space->detach(3), Status::Ok);
    EXPECT_EQ(world.space->copy(world.local(), world.dram(3), 64, kL2G), Status::Ok) << "somebody came in its place";
    EXPECT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked.back(), std::vector<std::uint32_t>{3});
}

TEST(CatchUp, that_fails_leaves_the_first_reason) {
    World world;
    const auto with = [&](auto answer) {
        world.space->set_catch_up([=](const std::vector<std::uint32_t>&) { return answer(); }, false);
    };
    with([] { return fail(Status::Timeout, "the store is away"); });
    EXPECT_EQ(world.space->copy(world.local(), world.dram(3), 64, kL2G), Status::NotConnected);
    EXPECT_EQ(last_error(), "bm object 7: rank 3 has not joined; wait until it has");
    with([] { return Status::Interrupted; });
    EXPECT_EQ(world.space->copy(world.local(), world.dram(3), 64, kL2G), Status::Interrupted);
}

}  // namespace
}  // namespace memfabric
