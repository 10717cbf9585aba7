// SPDX-License-Identifier: Apache-2.0
#include "tcp/server.h"

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/pause_point.h"
#include "endpoint/instance_id.h"
#include "tcp/listener.h"
#include "tcp/served_memory.h"
#include "tcp/transport.h"
#include "tests/assertions.h"
#include "transports/routed_batch.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

constexpr std::size_t kServedBytes = 4096;
constexpr const char* kReceives = "tcp.server.receive";

struct ServedBytes final : tcp::Exposure {
    std::uint64_t generation() const noexcept override { return 1; }
    bool covers(std::uint64_t, std::uint64_t) const noexcept override { return true; }
    std::vector<std::byte> memory = std::vector<std::byte>(kServedBytes);
};

// Served for as long as it lives, and a way there.
struct ServedAndReached {
    explicit ServedAndReached(const tcp::Listener& listener) {
        Connect connect;
        fill_random(connect.target);
        fill_random(connect.secret);
        served = std::make_unique<tcp::ServedMemory>(connect, exposed);
        tcp::Target target;
        require_ok(tcp::Target::make(listener.address(), connect, nullptr, target));
        transport = std::make_unique<tcp::TcpTransport>(target);
    }

    Status write() {
        std::vector<std::byte> source(kServedBytes, std::byte{'s'});
        RoutedBatch batch;
        batch.add(*transport, Direction::Write, {exposed->memory.data(), source.data(), source.size()});
        return batch.run([] { return Status::Ok; }, 20s).status;
    }

    std::shared_ptr<ServedBytes> exposed = std::make_shared<ServedBytes>();
    std::unique_ptr<tcp::ServedMemory> served;
    std::unique_ptr<tcp::TcpTransport> transport;
};

// Memory goes and other memory comes, at whatever address, while the server's thread is busy.
TEST(TcpServer, does_not_take_new_memory_for_what_has_gone) {
    std::unique_ptr<tcp::Listener> listener;
    require_ok(tcp::Listener::open({"127.0.0.1", 0}, 0, nullptr, listener));
    ServedAndReached busy(*listener);
    ASSERT_EQ(busy.write(), Status::Ok);
    const std::size_t connections = tcp::Server::process().connections();
    auto gone = std::make_unique<ServedAndReached>(*listener);
    PausePoint::hold(kReceives);
    auto busy_write = std::async(std::launch::async, [&] { return busy.write(); });
    ASSERT_TRUE(PausePoint::wait_until_held(kReceives, 20s));
    gone.reset();
    ServedAndReached come(*listener);
    auto first_write = std::async(std::launch::async, [&] { return come.write(); });
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (tcp::Server::process().connections() == connections && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::yield();
    }
    PausePoint::release(kReceives);
    EXPECT_EQ(busy_write.get(), Status::Ok);
    EXPECT_EQ(first_write.get(), Status::Ok);
}

}  // namespace
}  // namespace memfabric
