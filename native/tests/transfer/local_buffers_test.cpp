// SPDX-License-Identifier: Apache-2.0
//
// Transfers whose own side lies in an object of this process: where no memory is, and where its owner goes meanwhile.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/pause_point.h"
#include "tests/assertions.h"
#include "tests/space/space_fixture.h"
#include "tests/transports/kernel_route.h"
#include "transfer/engine.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

constexpr std::uint64_t kBufferBytes = 4096;

// Two engines and a pool: the second engine shows mapped memory, the pool has buffers.
struct Neighbours {
    World world;
    std::shared_ptr<TransferEngine> one = std::make_shared<TransferEngine>();
    std::shared_ptr<TransferEngine> other = std::make_shared<TransferEngine>();
    std::uint64_t place = 0;

    Neighbours() {
        require_ok(one->open("127.0.0.1:0", 30s, "host"));
        require_ok(other->open("127.0.0.1:0", 30s, "host"));
        require_ok(other->allocate(2 * kBufferBytes, place));
    }
    Status single(Direction direction, std::uint64_t buffer, std::uint64_t size_bytes = kBufferBytes) {
        return one->transfer(direction, other->session(), buffer, place, size_bytes);
    }
    // The first piece is plain memory.
    Status batch(Direction direction, std::uint64_t buffer) {
        const std::vector<std::uint64_t> buffers{world.local(), buffer};
        const std::vector<std::uint64_t> peer_buffers{place, place + kBufferBytes};
        const std::vector<std::uint64_t> sizes{kBufferBytes, kBufferBytes};
        return one->transfer_batch(direction, other->session(), {buffers, peer_buffers, sizes});
    }
    Status quantised(std::uint64_t buffer, std::uint64_t scale, std::uint64_t offset) {
        return one->write_quantised(other->session(),
                                    {{buffer}, {place}, {kBufferBytes}, {scale}, {offset}, 1, HalfType::Fp16, {}}, 0);
    }
    void lose(std::uint32_t rank) {
        require_ok(world.space->revoke(rank, "its process died"));
        require_ok(world.space->detach(rank));
    }
};

// Holds the transfer that `call` makes after its buffer was admitted, takes rank 1 away, and lets it go on.
template <typename Call>
Status meanwhile_revoked(Neighbours& neighbours, const char* point, Call call) {
    Status status = Status::Error;
    PausePoint::hold(point);
    std::thread caller([&] { status = call(); });
    const bool held = PausePoint::wait_until_held(point, 20s);
    const Status revoked = neighbours.world.space->revoke(1, "its process died");
    PausePoint::release(point);
    caller.join();
    EXPECT_TRUE(held);
    EXPECT_EQ(revoked, Status::Ok);
    return status;
}

TEST(LocalBuffer, of_a_lost_rank_is_refused) {
    Neighbours neighbours;
    const std::uint64_t buffer = neighbours.world.dram(1);
    for (const Direction direction : {Direction::Write, Direction::Read}) {
        EXPECT_EQ(neighbours.single(direction, buffer), Status::Ok);
        EXPECT_EQ(neighbours.batch(direction, buffer), Status::Ok);
    }
    const std::uint64_t plain = neighbours.world.local();
    EXPECT_EQ(neighbours.quantised(buffer, plain, plain), Status::Ok);
    neighbours.lose(1);
    for (const Direction direction : {Direction::Write, Direction::Read}) {
        EXPECT_EQ(neighbours.single(direction, buffer), Status::NotConnected);
        EXPECT_TRUE(says("rank 1 cannot be reached: its process died"));
        EXPECT_EQ(neighbours.batch(direction, buffer), Status::NotConnected);
    }
    EXPECT_EQ(neighbours.quantised(buffer, plain, plain), Status::NotConnected);
    EXPECT_EQ(neighbours.quantised(plain, buffer, plain), Status::NotConnected);
    EXPECT_EQ(neighbours.quantised(plain, plain, buffer), Status::NotConnected);
    EXPECT_EQ(neighbours.quantised(plain, plain, 0), Status::Ok);
}

TEST(LocalBuffer, where_no_memory_is_is_refused) {
    Neighbours neighbours;
    const World& world = neighbours.world;
    EXPECT_EQ(neighbours.single(Direction::Write, world.dram(3)), Status::NotConnected);
    EXPECT_TRUE(says("rank 3 has not joined"));
    EXPECT_EQ(neighbours.single(Direction::Write, world.dram(2) + World::kHeld - 1, 2), Status::InvalidParam);
    EXPECT_TRUE(says("does not lie in the DRAM of rank 2"));
    EXPECT_EQ(neighbours.single(Direction::Read, world.dram(0) - 1, 2), Status::InvalidParam);
    EXPECT_TRUE(says("starts outside bm object 7 and reaches into its range"));
}

TEST(LocalBuffer, revoked_during_a_transfer_gives_no_success) {
    Neighbours neighbours;
    const std::uint64_t buffer = neighbours.world.dram(1);
    EXPECT_EQ(meanwhile_revoked(neighbours, "transfer.map_segment",
                                [&] { return neighbours.single(Direction::Write, buffer); }),
              Status::PartialFailed)
        << "the peer has what nobody can vouch for";
}

TEST(LocalBuffer, revoked_during_a_batch_gives_no_success) {
    if (!kernel_moves_memory()) GTEST_SKIP() << kNoKernelRoute;  // then it is a long move, which says what it has moved
    Neighbours neighbours;
    const std::uint64_t buffer = neighbours.world.dram(1);
    EXPECT_EQ(meanwhile_revoked(neighbours, "transfer.map_segment",
                                [&] { return neighbours.batch(Direction::Read, buffer); }),
              Status::NotConnected);
}

TEST(LocalBuffer, revoked_during_quantisation_gives_no_success) {
    Neighbours neighbours;
    const std::uint64_t plain = neighbours.world.local();
    const std::uint64_t scale = neighbours.world.dram(1);
    EXPECT_EQ(
        meanwhile_revoked(neighbours, "transfer.quantise", [&] { return neighbours.quantised(plain, scale, plain); }),
        Status::NotConnected);
}

}  // namespace
}  // namespace memfabric
