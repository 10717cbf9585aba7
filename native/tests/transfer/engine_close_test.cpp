// SPDX-License-Identifier: Apache-2.0
//
// An engine that several threads close and open: half-closed is no state that anybody sees.
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/pause_point.h"
#include "tests/assertions.h"
#include "transfer/engine.h"

namespace memfabric {
namespace {

using namespace std::chrono_literals;

// Holds a thread half-way through closing the engine, runs `meanwhile` beside it until it has ended or waits for that
// thread, and lets both go.
template <typename Meanwhile>
void while_closing(TransferEngine& engine, Meanwhile meanwhile) {
    constexpr char kWaits[] = "transfer.closes_elsewhere";
    PausePoint::hold("transfer.close");
    PausePoint::hold(kWaits);
    std::thread closing([&] { engine.close(); });
    EXPECT_TRUE(PausePoint::wait_until_held("transfer.close", 20s));
    std::future<void> beside = std::async(std::launch::async, meanwhile);
    while (!PausePoint::wait_until_held(kWaits, 1ms) && beside.wait_for(0s) != std::future_status::ready) {
    }
    PausePoint::release(kWaits);
    PausePoint::release("transfer.close");
    beside.get();
    closing.join();
}

TEST(EngineClose, engine_that_is_opened_while_it_closes_is_whole) {
    const auto engine = std::make_shared<TransferEngine>();
    ASSERT_EQ(engine->open("127.0.0.1:0", 20s, "host"), Status::Ok);
    while_closing(*engine, [&] { EXPECT_EQ(engine->open("127.0.0.1:0", 20s, "host"), Status::Ok); });
    EXPECT_TRUE(engine->is_open());
    EXPECT_NE(engine->session(), "");
    std::uint64_t address = 0;
    ASSERT_EQ(engine->allocate(4096, address), Status::Ok);
    const char byte = 'x';
    EXPECT_EQ(engine->transfer(Direction::Write, engine->session(), reinterpret_cast<std::uint64_t>(&byte), address, 1),
              Status::Ok);
    EXPECT_EQ(*reinterpret_cast<char*>(address), 'x');
}

TEST(EngineClose, engine_that_is_closed_twice_is_closed_when_either_returns) {
    const auto engine = std::make_shared<TransferEngine>();
    ASSERT_EQ(engine->open("127.0.0.1:0", 20s, "host"), Status::Ok);
    const std::string session = engine->session();
    const auto successor = std::make_shared<TransferEngine>();
    while_closing(*engine, [&] {
        engine->close();
        EXPECT_EQ(successor->open(session, 20s, "host"), Status::Ok);  // nobody listens there any more
    });
}

TEST(EngineClose, engine_that_closes_takes_no_allocation_with_it) {
    const auto engine = std::make_shared<TransferEngine>();
    ASSERT_EQ(engine->open("127.0.0.1:0", 20s, "host"), Status::Ok);
    std::uint64_t address = 0;
    while_closing(*engine, [&] { EXPECT_EQ(engine->allocate(4096, address), Status::Ok); });
    EXPECT_EQ(engine->registration_count(), 1U);
    EXPECT_EQ(engine->release(address), Status::Ok);
}

}  // namespace
}  // namespace memfabric
