// SPDX-License-Identifier: Apache-2.0
//
// Engines of one process, which speak to each other through real sockets.
#include "transfer/engine.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "tests/address_of.h"
#include "tests/assertions.h"
#include "tests/transports/kernel_route.h"
#include "transfer/ticket.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

std::shared_ptr<TransferEngine> opened() {
    auto engine = std::make_shared<TransferEngine>();
    EXPECT_EQ(engine->open("127.0.0.1:0", 30s, "host"), Status::Ok);
    return engine;
}

std::uint64_t allocated(TransferEngine& engine, std::uint64_t size_bytes) {
    std::uint64_t address = 0;
    EXPECT_EQ(engine.allocate(size_bytes, address), Status::Ok);
    return address;
}

TEST(TransferEngine, writes_and_reads_mapped_memory) {
    const auto one = opened();
    const auto other = opened();
    const std::uint64_t place = allocated(*other, 1 << 20);
    std::vector<char> source(1 << 20, 'a');
    ASSERT_EQ(one->transfer(Direction::Write, other->session(), address_of(source.data()), place, source.size()),
              Status::Ok);
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(place), source.data(), source.size()), 0);
    std::vector<char> back(1 << 20);
    EXPECT_EQ(one->transfer(Direction::Read, other->session(), address_of(back.data()), place, back.size()),
              Status::Ok);
    EXPECT_TRUE(same_bytes(back, source));
    EXPECT_EQ(one->transfer(Direction::Write, other->session(), address_of(source.data()), place + 1, source.size()),
              Status::InvalidParam);
    EXPECT_TRUE(says("not all inside"));
    EXPECT_EQ(other->release(place), Status::Ok);
    EXPECT_EQ(one->transfer(Direction::Write, other->session(), address_of(source.data()), place, 1),
              Status::InvalidParam);
}

TEST(TransferEngine, writes_private_memory) {
    if (!kernel_moves_memory()) GTEST_SKIP() << kNoKernelRoute;
    const auto one = opened();
    const auto other = opened();
    std::vector<char> target(3 << 20);
    const std::vector<char> source(3 << 20, 'b');
    const std::vector<std::uint64_t> starts{address_of(target.data())};
    ASSERT_EQ(other->register_memory(starts, std::vector<std::uint64_t>{target.size()}), Status::Ok);
    std::vector<std::uint64_t> from;
    std::vector<std::uint64_t> to;
    std::vector<std::uint64_t> sizes;
    for (std::size_t at = 0; at < target.size(); at += 1024) {
        from.push_back(address_of(source.data()) + at);
        to.push_back(address_of(target.data()) + at);
        sizes.push_back(1024);
    }
    ASSERT_EQ(one->transfer_batch(Direction::Write, other->session(), {from, to, sizes}), Status::Ok);
    EXPECT_TRUE(same_bytes(target, source));
    to.back() += 1;
    EXPECT_EQ(one->transfer_batch(Direction::Write, other->session(), {from, to, sizes}), Status::InvalidParam);
    EXPECT_EQ(other->unregister_memory(starts), Status::Ok);
    EXPECT_EQ(one->transfer(Direction::Read, other->session(), from[0], to[0], 1), Status::InvalidParam);
}

TEST(TransferEngine, needs_an_open_engine_and_a_living_peer) {
    TransferEngine closed;
    char byte = 1;
    EXPECT_EQ(closed.transfer(Direction::Write, "127.0.0.1:1", address_of(&byte), 4096, 1), Status::NotInit);
    const auto one = opened();
    EXPECT_EQ(one->open("127.0.0.1:0", 3000ms, "host"), Status::RepeatInvoke);
    EXPECT_EQ(one->probe("127.0.0.1:1"), Status::NotConnected);
    EXPECT_EQ(one->probe("nonsense"), Status::InvalidParam);
    const auto other = opened();
    const std::string session = other->session();
    EXPECT_EQ(one->probe(session), Status::Ok);
    other->close();
    EXPECT_EQ(one->probe(session), Status::NotConnected);
    ASSERT_EQ(other->open(session, 3000ms, "host"), Status::Ok);  // the same address again
    EXPECT_EQ(one->probe(session), Status::Ok);
    std::shared_ptr<TransferEngine> third = std::make_shared<TransferEngine>();
    EXPECT_EQ(third->open(session, 3000ms, "host"), Status::ResourceInUse);
}

TEST(TransferEngine, ports_are_reserved) {
    TransferEngine engine;
    std::uint16_t first = 0;
    std::uint16_t second = 0;
    ASSERT_EQ(engine.port(first), Status::Ok);
    ASSERT_EQ(engine.port(second), Status::Ok);
    EXPECT_NE(first, 0);
    EXPECT_EQ(first, second);
    ASSERT_EQ(engine.open("127.0.0.1", 3000ms, "host"), Status::Ok);
    EXPECT_EQ(engine.session(), "127.0.0.1:" + std::to_string(first));
}

TEST(TransferEngine, tells_peer_failures_once) {
    const auto one = opened();
    auto other = opened();
    const std::string session = other->session();
    const std::shared_ptr<PeerFailures> failures = one->failures();
    failures->listen();
    ASSERT_EQ(one->probe(session), Status::Ok);
    ASSERT_EQ(other->probe(one->session()), Status::Ok);
    other.reset();
    std::string told;
    ASSERT_TRUE(failures->wait(told));
    EXPECT_EQ(told, session);
    one->close();
    EXPECT_FALSE(failures->wait(told));
}

TEST(TransferEngine, tickets_run_wait_and_are_cancelled) {
    const auto engine = opened();
    std::atomic<bool> go{false};
    const auto submit = [&](const std::shared_ptr<Ticket>& ticket, Stream::Task work) {
        EXPECT_EQ(engine->submit_own("peer", [ticket, work] { ticket->run(work); }), Status::Ok);
    };
    const auto first = std::make_shared<Ticket>();
    const auto second = std::make_shared<Ticket>();
    const auto third = std::make_shared<Ticket>();
    submit(first, [&] {
        go.wait(false);
        return Status::Ok;
    });
    submit(second, [] { return Status::Ok; });
    submit(third, [] { return fail(Status::NotConnected, "as it should be"); });
    EXPECT_EQ(second->wait(1ms), Status::Timeout);
    EXPECT_TRUE(second->cancel());
    EXPECT_EQ(second->wait(std::nullopt), Status::NotStarted);
    go.store(true);
    go.notify_all();
    EXPECT_EQ(first->wait(std::nullopt), Status::Ok);
    EXPECT_EQ(third->wait(std::nullopt), Status::NotConnected);
    EXPECT_EQ(take_last_error(), "as it should be");
    EXPECT_FALSE(third->cancel());
}

// Writers without a pause, while the memory is taken back and given again: after `unregister_memory` nothing lands.
TEST(TransferEngine, never_writes_after_the_end_of_a_registration) {
    const auto target = opened();
    constexpr std::uint64_t kSize = 256 * 1024;
    const std::uint64_t place = allocated(*target, kSize);
    const std::vector<std::uint64_t> starts{place};
    const std::vector<std::uint64_t> sizes{kSize};
    std::atomic<bool> stopping{false};
    std::atomic<unsigned> written{0};
    std::vector<std::thread> writers;
    const bool emulated = !kernel_moves_memory();  // emulators take seconds for each engine and each turn
    for (int i = 0; i < (emulated ? 1 : 3); ++i) {
        writers.emplace_back([&] {
            const auto engine = opened();
            const std::vector<char> source(kSize, 'w');
            while (!stopping.load()) {
                const Status status =
                    engine->transfer(Direction::Write, target->session(), address_of(source.data()), place, kSize);
                if (status == Status::Ok) written.fetch_add(1);
                if (status != Status::Ok && status != Status::InvalidParam) {
                    EXPECT_EQ(status, Status::Ok);
                }
            }
        });
    }
    const char turns = emulated ? 3 : 50;
    for (char turn = 0; turn < turns; ++turn) {
        const unsigned before = written.load();
        while (written.load() == before) std::this_thread::yield();
        ASSERT_EQ(target->unregister_memory(starts), Status::Ok);
        std::memset(reinterpret_cast<void*>(place), turn, kSize);
        std::this_thread::sleep_for(1ms);
        const std::vector<char> expected(kSize, turn);
        EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(place), expected.data(), kSize), 0);
        ASSERT_EQ(target->register_memory(starts, sizes), Status::Ok);
    }
    stopping.store(true);
    for (std::thread& writer : writers) writer.join();
}

// Engines that come and go under the feet of others: every outcome is a code, and nothing hangs.
TEST(TransferEngine, survives_engines_that_come_and_go) {
    const auto engine = opened();
    TransferEngine reserving;
    std::uint16_t port = 0;
    ASSERT_EQ(reserving.port(port), Status::Ok);
    const std::string session = "127.0.0.1:" + std::to_string(port);
    std::atomic<bool> stopping{false};
    std::vector<std::thread> callers;
    std::atomic<unsigned> reached{0};
    for (int i = 0; i < 3; ++i) {
        callers.emplace_back([&] {
            char byte = 1;
            while (!stopping.load()) {
                if (engine->probe(session) == Status::Ok) reached.fetch_add(1);
                static_cast<void>(engine->transfer(Direction::Write, session, address_of(&byte), 4096, 1));
            }
        });
    }
    for (int turn = 0; turn < 30; ++turn) {
        TransferEngine target;
        ASSERT_EQ(target.open(session, 3000ms, "host"), Status::Ok);
        const unsigned before = reached.load();
        while (reached.load() == before) std::this_thread::yield();
    }
    stopping.store(true);
    for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace memfabric
