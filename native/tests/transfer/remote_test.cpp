// SPDX-License-Identifier: Apache-2.0
//
// Engines that count as two hosts: everything between them goes over TCP, or by UCX, which goes over its own TCP here.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "sync/rcu.h"
#include "tcp/server.h"
#include "tests/address_of.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/transports/far_memory.h"
#include "tests/ucx/ucx_library.h"
#include "transfer/engine.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

class RemoteTransfer : public ::testing::Test {
protected:
    void SetUp() override {
        require_ok(one->open("127.0.0.1:0", 30s, "one host", {}, {}, ucx));
        require_ok(other->open("127.0.0.1:0", 30s, "another host", {}, {}, ucx));
        expose(target);
    }

    void expose(const std::vector<std::byte>& memory) {
        const std::uint64_t start = address_of(memory.data());
        const std::uint64_t size_bytes = memory.size();
        require_ok(other->register_memory({&start, 1}, {&size_bytes, 1}));
    }
    Status unexpose(const std::vector<std::byte>& memory) {
        const std::uint64_t start = address_of(memory.data());
        return other->unregister_memory({&start, 1});
    }
    Status write(const std::vector<std::byte>& source, std::size_t size_bytes) {
        return one->transfer(Direction::Write, other->session(), address_of(source.data()), address_of(target.data()),
                             size_bytes);
    }
    Status read(std::vector<std::byte>& into, std::size_t size_bytes) {
        return one->transfer(Direction::Read, other->session(), address_of(into.data()), address_of(target.data()),
                             size_bytes);
    }

    UcxUse ucx;  // none of it
    std::shared_ptr<TransferEngine> one = std::make_shared<TransferEngine>();
    std::shared_ptr<TransferEngine> other = std::make_shared<TransferEngine>();
    std::vector<std::byte> target = std::vector<std::byte>(std::size_t{5} << 20);
};

class RemoteTransferByUcx : public RemoteTransfer {
protected:
    void SetUp() override {
        if (const std::string obstacle = load_ucx(); !obstacle.empty()) GTEST_SKIP() << obstacle;
        ucx.options = ucx_over_loopback();
        ucx.offer.version = ucx::Library::loaded()->version();
        ucx.choose = [](const UcxOffer&, bool, NetworkRoute& chosen) {
            chosen = {true, "it was said"};
            return Status::Ok;
        };
        RemoteTransfer::SetUp();
    }
};

class RemoteTransferBy : public RemoteTransferByUcx, public ::testing::WithParamInterface<Route> {
protected:
    void SetUp() override { GetParam() == Route::Ucx ? RemoteTransferByUcx::SetUp() : RemoteTransfer::SetUp(); }
};

INSTANTIATE_TEST_SUITE_P(Network, RemoteTransferBy, ::testing::Values(Route::Tcp, Route::Ucx),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST_P(RemoteTransferBy, writes_and_reads) {
    const std::vector<std::byte> source = pattern(target.size(), 1);
    const auto before = rcu::traffic(GetParam(), Operation::Write, size_class(source.size()));
    ASSERT_EQ(write(source, source.size()), Status::Ok) << last_error();
    EXPECT_TRUE(same_bytes(target, source));
    std::vector<std::byte> back(target.size());
    ASSERT_EQ(read(back, back.size()), Status::Ok) << last_error();
    EXPECT_TRUE(same_bytes(back, source));
    const auto after = rcu::traffic(GetParam(), Operation::Write, size_class(source.size()));
    EXPECT_EQ(after.calls - before.calls, 1U);
    EXPECT_EQ(after.bytes - before.bytes, source.size());
}

TEST_P(RemoteTransferBy, moves_batches_of_many_pieces) {
    const std::vector<std::byte> source = pattern(target.size(), 2);
    std::vector<std::uint64_t> from;
    std::vector<std::uint64_t> to;
    std::vector<std::uint64_t> sizes;
    for (std::size_t at = 0; at < target.size(); at += 1024) {
        from.push_back(address_of(source.data()) + at);
        to.push_back(address_of(target.data()) + at);
        sizes.push_back(1024);
    }
    ASSERT_EQ(one->transfer_batch(Direction::Write, other->session(), {from, to, sizes}), Status::Ok) << last_error();
    EXPECT_TRUE(same_bytes(target, source));
    std::vector<std::byte> back(target.size());
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = address_of(back.data()) + i * 1024;
    ASSERT_EQ(one->transfer_batch(Direction::Read, other->session(), {from, to, sizes}), Status::Ok) << last_error();
    EXPECT_TRUE(same_bytes(back, source));
}

TEST_P(RemoteTransferBy, touches_registered_memory_only) {
    const std::vector<std::byte> source(target.size() + 1, std::byte{7});
    EXPECT_EQ(write(source, source.size()), Status::InvalidParam);
    EXPECT_TRUE(says("not all inside memory that is registered there now"));
    ASSERT_EQ(unexpose(target), Status::Ok);
    EXPECT_EQ(write(source, 1), Status::InvalidParam);
    std::vector<std::byte> back(1, std::byte{9});
    EXPECT_EQ(read(back, 1), Status::InvalidParam);
    EXPECT_EQ(back[0], std::byte{9});
    EXPECT_EQ(target, std::vector<std::byte>(target.size()));
    expose(target);  // and the connection is as good as before
    EXPECT_EQ(write(source, 1), Status::Ok);
}

TEST_P(RemoteTransferBy, names_the_piece_that_is_not_registered) {
    const std::vector<std::byte> source(64, std::byte{7});
    const std::uint64_t here = address_of(source.data()), there = address_of(target.data());
    const std::vector<std::uint64_t> from{here, here, here}, sizes{16, 16, 16};
    std::vector<std::uint64_t> to{there, there + target.size(), there + 64};
    EXPECT_EQ(one->transfer_batch(Direction::Write, other->session(), {from, to, sizes}), Status::InvalidParam);
    EXPECT_TRUE(says("piece 1 of 3 (counted from 0), 16 bytes from")) << last_error();
    to = {there, there + 64, there + target.size() - 16};
    std::vector<std::uint64_t> longer{16, 16, 17};
    EXPECT_EQ(one->transfer_batch(Direction::Write, other->session(), {from, to, longer}), Status::InvalidParam);
    EXPECT_TRUE(says("piece 2 of 3 (counted from 0), 17 bytes from")) << last_error();
    EXPECT_EQ(target, std::vector<std::byte>(target.size()));
}

TEST_F(RemoteTransfer, neighbouring_pieces_are_refused_as_one) {
    const std::vector<std::byte> source(64, std::byte{7});
    const std::uint64_t here = address_of(source.data()), there = address_of(target.data());
    // More than fit into one request, so that all of them are checked first, neighbours as one.
    std::vector<std::uint64_t> from, to, sizes;
    for (std::uint64_t at = 0; at < 4096; ++at) to.push_back(there + at % 2 * 128);
    to.insert(to.end(), {there + target.size() - 16, there + target.size()});
    from.assign(to.size(), here);
    sizes.assign(to.size(), 16);
    EXPECT_EQ(one->transfer_batch(Direction::Write, other->session(), {from, to, sizes}), Status::InvalidParam);
    EXPECT_TRUE(says("pieces 4096 to 4097 of 4098 (counted from 0): session")) << last_error();
    EXPECT_EQ(target, std::vector<std::byte>(target.size()));
}

TEST_F(RemoteTransfer, registration_that_ends_in_the_middle_keeps_the_rest_out) {
    const std::vector<std::byte> source(target.size(), std::byte{7});
    PausePoint::hold("tcp.server.receive");
    Status status = Status::Ok;
    std::string sentence;
    std::thread writer([&] {
        status = write(source, source.size());
        sentence = last_error();
    });
    ASSERT_TRUE(PausePoint::wait_until_held("tcp.server.receive", 20s));
    EXPECT_EQ(unexpose(target), Status::Ok);  // nobody is inside, so it does not wait
    const std::vector<std::byte> then = target;
    PausePoint::release("tcp.server.receive");
    writer.join();
    EXPECT_EQ(status, Status::InvalidParam);
    EXPECT_TRUE(contains(sentence, "not all inside memory that is registered there now"));
    EXPECT_EQ(target, then);
}

TEST_F(RemoteTransfer, read_whose_registration_ends_in_the_middle_fails) {
    PausePoint::hold("tcp.server.send");
    Status status = Status::Ok;
    std::vector<std::byte> back(target.size());
    std::thread reader([&] { status = read(back, back.size()); });
    ASSERT_TRUE(PausePoint::wait_until_held("tcp.server.send", 20s));
    EXPECT_EQ(unexpose(target), Status::Ok);
    PausePoint::release("tcp.server.send");
    reader.join();
    EXPECT_EQ(status, Status::PartialFailed) << "what came until then is in our buffer";
}

TEST_P(RemoteTransferBy, peer_that_ends_is_told_and_one_that_comes_back_is_picked_up) {
    const auto failures = one->failures();
    failures->listen();
    const std::vector<std::byte> source = pattern(100, 3);
    ASSERT_EQ(write(source, source.size()), Status::Ok) << last_error();
    const std::string session = other->session();
    other->close();
    std::string told;
    ASSERT_TRUE(failures->wait(told));
    EXPECT_EQ(told, session);
    EXPECT_EQ(one->transfer(Direction::Write, session, address_of(source.data()), address_of(target.data()), 1),
              Status::NotConnected);
    ASSERT_EQ(other->open(session, 30s, "another host", {}, {}, ucx), Status::Ok);
    expose(target);
    EXPECT_EQ(write(source, source.size()), Status::Ok) << last_error();
}

TEST_P(RemoteTransferBy, target_hears_that_its_initiator_has_gone) {
    const auto failures = other->failures();
    failures->listen();
    ASSERT_EQ(one->probe(other->session()), Status::Ok);
    const std::string session = one->session();
    one->close();
    std::string told;
    ASSERT_TRUE(failures->wait(told));
    EXPECT_EQ(told, session);
}

TEST_F(RemoteTransfer, stalled_peer_is_given_up_after_the_time_out) {
    one->close();
    ASSERT_EQ(one->open("127.0.0.1:0", 300ms, "one host"), Status::Ok);
    ASSERT_EQ(one->probe(other->session()), Status::Ok);
    const std::vector<std::byte> source(target.size(), std::byte{7});
    PausePoint::hold("tcp.server.receive");  // it has taken the request, and goes no further
    EXPECT_EQ(write(source, source.size()), Status::PartialFailed);
    EXPECT_TRUE(says("no byte has moved for 0.300 s"));
    PausePoint::release("tcp.server.receive");
    EXPECT_EQ(write(source, source.size()), Status::Ok) << last_error();
    EXPECT_TRUE(same_bytes(target, source));
}

TEST_F(RemoteTransfer, server_has_few_threads_and_ends_with_its_last_engine) {
    const std::vector<std::byte> source = pattern(100, 3);
    ASSERT_EQ(write(source, source.size()), Status::Ok) << last_error();
    EXPECT_GE(tcp::Server::process().connections(), 1U);
    EXPECT_LE(tcp::Server::process().threads(), 4U);
    one->close();
    other->close();
    EXPECT_EQ(tcp::Server::process().threads(), 0U);
}

TEST_F(RemoteTransferByUcx, moves_across_registrations_that_touch) {
    ASSERT_EQ(unexpose(target), Status::Ok);
    const std::uint64_t start = address_of(target.data());
    const std::uint64_t middle = start + 4097;
    const std::uint64_t sizes[] = {4097, target.size() - 4097};
    require_ok(other->register_memory({&start, 1}, {&sizes[0], 1}));
    require_ok(other->register_memory({&middle, 1}, {&sizes[1], 1}));
    const std::vector<std::byte> source = pattern(target.size(), 4);
    ASSERT_EQ(write(source, source.size()), Status::Ok) << last_error();
    EXPECT_TRUE(same_bytes(target, source));
    require_ok(other->unregister_memory({&start, 1}));
    EXPECT_NE(write(source, source.size()), Status::Ok);  // the rest may have been written before UCX heard of it
    EXPECT_EQ(write(source, source.size()), Status::InvalidParam);
    EXPECT_EQ(one->transfer(Direction::Write, other->session(), address_of(source.data()), middle, 1), Status::Ok);
}

// Those that were registered together are reached through one worker.
TEST_F(RemoteTransferByUcx, the_end_of_one_registration_disturbs_nobody_elses_moves) {
    std::vector<std::vector<std::byte>> companions(8, std::vector<std::byte>(4096));
    std::vector<std::byte> lasting(std::size_t{4} << 20);
    std::vector<std::uint64_t> starts{address_of(lasting.data())};
    std::vector<std::uint64_t> sizes{lasting.size()};
    for (const std::vector<std::byte>& companion : companions) {
        starts.push_back(address_of(companion.data()));
        sizes.push_back(companion.size());
    }
    require_ok(other->register_memory(starts, sizes));
    std::atomic<bool> over{false};
    std::atomic<int> moved{0};
    std::string failure;
    std::thread writing([&] {
        const std::vector<std::byte> source = pattern(lasting.size(), 5);
        while (!over && failure.empty()) {
            const Status status = one->transfer(Direction::Write, other->session(), address_of(source.data()),
                                                address_of(lasting.data()), source.size());
            if (status != Status::Ok) failure = last_error();
            ++moved;
        }
    });
    for (std::size_t i = 1; i < starts.size(); ++i) {
        const int before = moved;
        const auto give_up_at = std::chrono::steady_clock::now() + 30s;
        while (moved < before + 2 && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
        EXPECT_EQ(other->unregister_memory({&starts[i], 1}), Status::Ok) << last_error();
    }
    over = true;
    writing.join();
    EXPECT_EQ(failure, "");
    EXPECT_EQ(lasting, pattern(lasting.size(), 5));
    EXPECT_EQ(one->transfer(Direction::Write, other->session(), address_of(lasting.data()), starts.back(), 1),
              Status::InvalidParam);
}

// A move that failed because memory was unregistered asks again where it is.
TEST_F(RemoteTransferByUcx, memory_that_is_registered_anew_is_found_again) {
    const std::vector<std::byte> source = pattern(target.size(), 6);
    ASSERT_EQ(write(source, 1), Status::Ok) << last_error();  // it knows the way now
    ASSERT_EQ(unexpose(target), Status::Ok);
    PausePoint::hold("transfer.ucx.lost");
    Status status = Status::Error;
    std::string sentence;
    std::thread writing([&] {
        status = write(source, source.size());
        sentence = last_error();
    });
    const bool was_lost = PausePoint::wait_until_held("transfer.ucx.lost", 20s);
    expose(target);
    PausePoint::release("transfer.ucx.lost");
    writing.join();
    EXPECT_TRUE(was_lost);
    EXPECT_EQ(status, Status::Ok) << sentence;
    EXPECT_TRUE(same_bytes(target, source));
}

TEST_F(RemoteTransferByUcx, memory_that_is_unregistered_while_it_is_registered_is_not_served) {
    std::vector<std::byte> fleeting(4096);
    PausePoint::hold("transfer.register.unserved");
    std::thread registering([&] { expose(fleeting); });
    ASSERT_TRUE(PausePoint::wait_until_held("transfer.register.unserved", 20s));
    EXPECT_EQ(unexpose(fleeting), Status::Ok);
    PausePoint::release("transfer.register.unserved");
    registering.join();
    const std::byte source{1};
    EXPECT_EQ(one->transfer(Direction::Write, other->session(), address_of(&source), address_of(fleeting.data()), 1),
              Status::InvalidParam);
}

}  // namespace
}  // namespace memfabric
