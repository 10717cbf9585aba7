// SPDX-License-Identifier: Apache-2.0
//
// Which copies a space accepts, and that they move the right bytes, now or later.
#include <array>
#include <cstring>
#include <future>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/last_error.h"
#include "copy/revocable.h"
#include "space/space.h"
#include "space/stream.h"
#include "tests/assertions.h"
#include "tests/space/space_fixture.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;

TEST(SpaceCopy, types_accept_exactly_their_classes) {
    World world;
    enum { kLocalSide = 1, kHostSide = 2, kGlobalSide = 4, kGlobalHostSide = 8 };
    struct Place {
        std::uintptr_t address;
        int classes;
    };
    const std::array<Place, 5> places{{
        {world.local(), kLocalSide | kHostSide},
        {world.dram(0), kLocalSide | kHostSide | kGlobalSide | kGlobalHostSide},
        {world.hbm(0), kLocalSide | kGlobalSide},
        {world.dram(1), kGlobalSide | kGlobalHostSide},
        {world.hbm(1), kGlobalSide},
    }};
    const std::array<std::pair<int, int>, 9> wanted{{
        {kLocalSide, kGlobalSide},
        {kGlobalSide, kLocalSide},
        {kGlobalSide, kHostSide},
        {kHostSide, kGlobalSide},
        {kLocalSide, kGlobalHostSide},
        {kGlobalHostSide, kLocalSide},
        {kGlobalHostSide, kHostSide},
        {kHostSide, kGlobalHostSide},
        {kGlobalSide, kGlobalSide},
    }};
    for (const Place& source : places) {
        for (const Place& target : places) {
            const std::uintptr_t target_address = target.address + 4096;
            for (std::uint32_t type = 0; type < wanted.size(); ++type) {
                const bool fits =
                    (source.classes & wanted[type].first) != 0 && (target.classes & wanted[type].second) != 0;
                const Status status = world.space->copy(source.address, target_address, 16, type);
                EXPECT_EQ(status, fits ? Status::Ok : Status::InvalidParam);
                EXPECT_TRUE(says(fits ? "" : "must be"));
            }
            const bool both_plain = source.address == world.local() && target.address == world.local();
            const Status status = world.space->copy(source.address, target_address, 16, kAuto);
            EXPECT_EQ(status, both_plain ? Status::InvalidParam : Status::Ok);
            EXPECT_TRUE(says(both_plain ? "neither the source" : ""));
        }
    }
}

TEST(SpaceCopy, refuses_bad_ranges) {
    World world;
    Space& space = *world.space;
    const std::uintptr_t end = world.dram(1) + World::kHeld;
    struct Row {
        std::uintptr_t source, target;
        std::size_t size_bytes;
        std::uint32_t type;
        Status status;
        const char* sentence;
    };
    const Row rows[] = {
        {world.local(), world.dram(1), 0, kH2G, Status::InvalidParam, "size of the copy is 0"},
        {0, world.dram(1), 1, kH2G, Status::InvalidParam, "source of 1 bytes at 0x0 is no memory"},
        {65535, world.dram(1), 1, kH2G, Status::InvalidParam, "0xffff"},
        {world.local(), std::uintptr_t{1} << 47, 1, kH2G, Status::InvalidParam, "target"},
        {world.local(), (std::uintptr_t{1} << 47) - 1, 2, kH2G, Status::InvalidParam, "target"},
        {UINTPTR_MAX, world.dram(1), 1, kH2G, Status::InvalidParam, "source"},
        {world.local(), UINTPTR_MAX - 3, 8, kH2G, Status::InvalidParam, "target"},
        {world.local(), world.dram(1), SIZE_MAX, kH2G, Status::InvalidParam, "source"},
        {world.local(), world.dram(1), 1, 10, Status::InvalidParam, "copy type 10"},
        {world.local(), end - 1, 1, kH2G, Status::Ok, ""},
        {world.local(), end - 1, 2, kH2G, Status::InvalidParam, "DRAM of rank 1, which has 2097152 bytes"},
        {world.local(), end, 1, kH2G, Status::InvalidParam, "rank 1"},
        {world.local(), world.dram(2) - 1, 2, kH2G, Status::InvalidParam, "rank 1"},
        {end - 1, world.local(), 2, kG2H, Status::InvalidParam, "source of 2 bytes"},
        {world.local(), world.dram(3), 1, kH2G, Status::NotConnected, "rank 3 has not joined"},
        {world.dram(3), world.dram(1), 1, kG2G, Status::NotConnected, "rank 3"},
        {space.layout().base() - 8, world.dram(1), 16, kH2G, Status::InvalidParam, "reaches into"},
        {world.dram(1), space.layout().base() - 8, 16, kG2H, Status::InvalidParam, "reaches into"},
        {world.hbm(3) + World::kMaxHbm - 8, world.local(), 16, kG2H, Status::InvalidParam, "rank 3"},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(space.copy(row.source, row.target, row.size_bytes, row.type), row.status);
        EXPECT_TRUE(says(row.sentence));
    }
}

TEST(SpaceCopy, moves_bytes_between_any_two_ranks) {
    World world;
    std::iota(reinterpret_cast<unsigned char*>(world.plain.data()),
              reinterpret_cast<unsigned char*>(world.plain.data()) + 1000, static_cast<unsigned char>(3));
    EXPECT_EQ(world.space->copy(world.local(), world.dram(1) + 10, 1000, kH2G), Status::Ok);
    EXPECT_EQ(world.space->copy(world.dram(1) + 10, world.hbm(2) + 20, 1000, kG2G), Status::Ok);
    EXPECT_EQ(world.space->copy(world.hbm(2) + 20, world.dram(0), 1000, kG2L), Status::Ok);
    EXPECT_EQ(std::memcmp(&byte_at(world.dram(0)), world.plain.data(), 1000), 0);
}

TEST(SpaceCopy, checks_addresses_of_other_objects_there) {
    World here("bm object 1");
    World there("bm object 2");
    EXPECT_EQ(here.space->copy(there.dram(1), here.dram(1), 64, kH2G), Status::Ok);
    EXPECT_EQ(here.space->copy(here.dram(1), there.hbm(0), 64, kG2L), Status::Ok);
    EXPECT_EQ(here.space->copy(there.dram(1), here.dram(1), 64, kAuto), Status::Ok);
    EXPECT_EQ(here.space->copy(there.dram(1), here.dram(1), 64, kG2G), Status::InvalidParam);
    EXPECT_EQ(here.space->copy(there.dram(1) + World::kHeld, here.dram(1), 64, kH2G), Status::InvalidParam);
    EXPECT_TRUE(says("bm object 2"));
    EXPECT_EQ(here.space->copy(there.dram(3), here.dram(1), 64, kH2G), Status::NotConnected);
    EXPECT_EQ(there.space->revoke(1, "it died"), Status::Ok);
    EXPECT_EQ(here.space->copy(there.dram(1), here.dram(1), 64, kH2G), Status::NotConnected);
    EXPECT_TRUE(says("bm object 2: rank 1 cannot be reached: it died"));
    const std::uintptr_t source = there.dram(2);
    std::shared_ptr<View> view;
    ASSERT_EQ(there.space->view(2, Tier::Dram, 0, 64, view), Status::Ok);
    there.space->close();
    EXPECT_EQ(here.space->copy(source, here.dram(1), 64, kH2G), Status::NotConnected);
    EXPECT_TRUE(says("the object was closed"));
}

TEST(SpaceCopy, batch_checks_everything_before_it_moves_anything) {
    World world;
    std::vector<std::uint64_t> sources(3, world.local());
    std::vector<std::uint64_t> targets{world.dram(1), world.dram(2), world.hbm(1)};
    std::vector<std::uint64_t> sizes{16, 16, 16};
    const auto copy = [&](std::size_t count) {
        return world.space->copy_batch({sources, targets, sizes}, count, kL2G);
    };
    targets[2] = world.hbm(1) + World::kHeld - 15;
    EXPECT_EQ(copy(3), Status::InvalidParam);
    EXPECT_EQ(byte_at(world.dram(1)), std::byte{0});
    targets[2] = world.hbm(1);
    EXPECT_EQ(copy(3), Status::Ok);
    for (const std::uint64_t target : targets) EXPECT_EQ(byte_at(target + 15), std::byte{0x5a});
    EXPECT_EQ(copy(2), Status::InvalidParam);
    EXPECT_TRUE(says("3 sources, 3 targets and 3 sizes"));
    EXPECT_EQ(copy(0), Status::InvalidParam);
    EXPECT_EQ(copy(kMaxBatchPieces + 1), Status::InvalidParam);
    EXPECT_TRUE(says("1 to 1048576"));
}

TEST(SpaceCopy, copy_2d_moves_rows_and_checks_the_whole_rectangle) {
    World world;
    for (std::size_t i = 0; i < 100; ++i) world.plain[i] = static_cast<std::byte>(i);
    const auto rectangle = [&](std::uintptr_t target, std::size_t source_pitch, std::size_t target_pitch,
                               std::size_t width, std::size_t height) {
        return Rectangle{
            reinterpret_cast<std::byte*>(target), target_pitch, world.plain.data(), source_pitch, width, height};
    };
    Space& space = *world.space;
    EXPECT_EQ(space.copy_2d(rectangle(world.dram(1), 10, 100, 4, 5), kH2G), Status::Ok);
    for (std::size_t row = 0; row < 5; ++row) {
        EXPECT_EQ(byte_at(world.dram(1) + row * 100 + 3), static_cast<std::byte>(row * 10 + 3));
        EXPECT_EQ(byte_at(world.dram(1) + row * 100 + 4), std::byte{0});
    }
    const std::uintptr_t last_fit = world.dram(1) + World::kHeld - (4 * 100 + 4);
    EXPECT_EQ(space.copy_2d(rectangle(last_fit, 10, 100, 4, 5), kH2G), Status::Ok);
    EXPECT_EQ(space.copy_2d(rectangle(last_fit + 1, 10, 100, 4, 5), kH2G), Status::InvalidParam);
    EXPECT_TRUE(says("404 bytes"));
    for (const Rectangle& bad : {rectangle(world.dram(1), 3, 100, 4, 5), rectangle(world.dram(1), 10, 3, 4, 5),
                                 rectangle(world.dram(1), 10, 100, 0, 5), rectangle(world.dram(1), 10, 100, 4, 0),
                                 rectangle(world.dram(1), SIZE_MAX, 100, 4, 2),
                                 rectangle(world.dram(1), 10, std::size_t{1} << 33, 4, std::size_t{1} << 33)}) {
        EXPECT_EQ(space.copy_2d(bad, kH2G), Status::InvalidParam);
        EXPECT_TRUE(says("make no rectangle"));
    }
}

TEST(SpaceCopy, asynchronous_copies_run_in_order) {
    World world;
    std::array<std::uint32_t, 200> numbers{};
    std::iota(numbers.begin(), numbers.end(), 1U);
    for (const std::uint32_t& number : numbers) {
        ASSERT_EQ(
            world.space->copy(reinterpret_cast<std::uintptr_t>(&number), world.dram(1), 4, kH2G, kFlagAsynchronous),
            Status::Ok);
        ASSERT_EQ(world.space->copy(world.dram(1), world.dram(2), 4, kG2G, kFlagAsynchronous), Status::Ok);
    }
    EXPECT_EQ(world.space->wait(), Status::Ok);
    std::uint32_t last = 0;
    std::memcpy(&last, &byte_at(world.dram(2)), 4);
    EXPECT_EQ(last, 200U);
}

TEST(SpaceCopy, asynchronous_copies_report_bad_values_at_once_and_later_failures_in_wait) {
    World world;
    Space& space = *world.space;
    EXPECT_EQ(space.copy(world.local(), world.dram(1), 0, kH2G, kFlagAsynchronous), Status::InvalidParam);
    EXPECT_EQ(space.copy(world.local(), world.dram(3), 1, kH2G, kFlagAsynchronous), Status::NotConnected);
    take_last_error();
    EXPECT_EQ(space.wait(), Status::Ok);

    // The stream is held up, so that the ranks can go away before the copies' turn.
    const auto stream = Stream::make();
    std::promise<void> go_on;
    std::uint64_t sequence = 0;
    ASSERT_EQ(stream->submit(
                  [&go_on] {
                      go_on.get_future().wait();
                      return Status::Ok;
                  },
                  sequence),
              Status::Ok);
    for (const std::uint32_t rank : {2U, 1U, 0U}) {
        ASSERT_EQ(space.copy(world.local(), world.dram(rank), 1, kH2G, kFlagStream, stream->handle()), Status::Ok);
    }
    ASSERT_EQ(space.revoke(1, "one died"), Status::Ok);
    ASSERT_EQ(space.revoke(2, "two died"), Status::Ok);
    go_on.set_value();
    EXPECT_EQ(space.wait(), Status::NotConnected);
    EXPECT_TRUE(says("two died"));
    EXPECT_EQ(space.wait(), Status::Ok);
    EXPECT_EQ(stream->wait(), Status::NotConnected);
    EXPECT_TRUE(says("two died"));
    EXPECT_EQ(byte_at(world.dram(0)), std::byte{0x5a});  // a failure does not stop what comes after it
}

TEST(SpaceCopy, copies_on_streams_need_a_stream) {
    World world;
    for (const std::uint64_t handle : {std::uint64_t{0}, UINT64_MAX}) {
        EXPECT_EQ(world.space->copy(world.local(), world.dram(1), 1, kH2G, kFlagStream, handle), Status::InvalidParam);
        EXPECT_TRUE(says("not the handle of an open stream"));
    }
    EXPECT_EQ(world.space->copy(world.local(), world.dram(1), 1, kH2G, 0xfa, UINT64_MAX),
              Status::Ok);  // other bits: ignored
}

TEST(SpaceCopy, asynchronous_batches_and_rectangles_outlive_their_arguments) {
    World world;
    {
        const std::vector<std::uint64_t> sources(2, world.local());
        const std::vector<std::uint64_t> targets{world.dram(1), world.dram(2)};
        const std::vector<std::uint64_t> sizes{16, 16};
        EXPECT_EQ(world.space->copy_batch({sources, targets, sizes}, 2, kH2G, kFlagAsynchronous), Status::Ok);
    }
    const Rectangle rectangle{&byte_at(world.hbm(1)), 16, world.plain.data(), 16, 8, 2};
    EXPECT_EQ(world.space->copy_2d(rectangle, kL2G, kFlagAsynchronous), Status::Ok);
    EXPECT_EQ(world.space->wait(), Status::Ok);
    for (const std::uintptr_t target : {world.dram(1) + 15, world.dram(2) + 15, world.hbm(1) + 23}) {
        EXPECT_EQ(byte_at(target), std::byte{0x5a});
    }
}

// Closing fails what is queued, and a queued copy keeps the space alive that it needs.
TEST(SpaceCopy, closing_fails_queued_copies) {
    const auto stream = Stream::make();
    std::promise<void> go_on;
    std::uint64_t sequence = 0;
    ASSERT_EQ(stream->submit(
                  [&go_on] {
                      go_on.get_future().wait();
                      return Status::Ok;
                  },
                  sequence),
              Status::Ok);
    {
        World world;
        for (int i = 0; i < 100; ++i) {
            ASSERT_EQ(world.space->copy(world.local(), world.dram(1), 8, kH2G, kFlagAsynchronous), Status::Ok);
        }
        ASSERT_EQ(world.space->copy(world.dram(1), world.dram(2), 8, kG2G, kFlagStream, stream->handle()), Status::Ok);
        world.space->close();
    }
    go_on.set_value();
    EXPECT_EQ(stream->wait(), Status::InvalidParam);
    EXPECT_TRUE(says("the handle is closed"));
}

TEST(SpaceCopy, chunks_ask_between_and_keep_the_order_of_overlapping_pieces) {
    constexpr std::size_t kSize = 2 * kChunkBytes + 4096;
    std::vector<std::byte> memory(kSize + 8192);
    const auto fill = [&] {
        for (std::size_t i = 0; i < memory.size(); i += 1024) memory[i] = static_cast<std::byte>(i / 1024 % 251);
    };
    for (const bool upwards : {false, true}) {
        fill();
        int asked = 0;
        const Piece piece{memory.data() + (upwards ? 8192 : 0), memory.data() + (upwards ? 0 : 8192), kSize};
        const Status status = move_chunked(CopyEngine::process(), piece, [&] {
            ++asked;
            return Status::Ok;
        });
        EXPECT_EQ(status, Status::Ok);
        EXPECT_EQ(asked, 3);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < kSize; i += 1024) {
            const std::size_t origin = upwards ? i : i + 8192;
            wrong += piece.target[i] != static_cast<std::byte>(origin / 1024 % 251) ? 1U : 0U;
        }
        EXPECT_EQ(wrong, std::size_t{0});
    }
}

TEST(SpaceCopy, large_rectangle_that_moves_onto_itself_is_taken_from_the_safe_end) {
    constexpr std::size_t width = std::size_t{1} << 20;
    constexpr std::size_t pitch = width + 64;
    constexpr std::size_t height = 40;  // more than one chunk
    const auto always = [] { return Status::Ok; };
    for (const bool upwards : {true, false}) {
        std::vector<std::byte> memory(pitch * (height + 1));
        for (std::size_t row = 0; row <= height; ++row) {
            std::fill_n(memory.begin() + static_cast<std::ptrdiff_t>(row * pitch), pitch, static_cast<std::byte>(row));
        }
        std::byte* low = memory.data();
        std::byte* high = low + pitch;
        const Rectangle moved = upwards ? Rectangle{high, pitch, low, pitch, width, height}
                                        : Rectangle{low, pitch, high, pitch, width, height};
        EXPECT_EQ(move_chunked(CopyEngine::process(), moved, always), Status::Ok);
        for (std::size_t row = 0; row < height; ++row) {
            const std::byte* written = (upwards ? high : low) + row * pitch;
            const auto expected = static_cast<std::byte>(upwards ? row : row + 1);
            EXPECT_TRUE(written[0] == expected && written[width - 1] == expected);
        }
    }
}

TEST(SpaceCopy, chunks_stop_when_told) {
    std::vector<std::byte> memory(4 * kChunkBytes);
    std::byte* half = memory.data() + 2 * kChunkBytes;
    CopyEngine& engine = CopyEngine::process();
    int asked = 0;
    const auto refuse = [&] {
        ++asked;
        return Status::NotConnected;
    };
    const std::size_t small = kChunkBytes / 4 * 3;
    EXPECT_EQ(move_chunked(engine, Piece{half, memory.data(), 2 * kChunkBytes}, refuse), Status::NotConnected);
    EXPECT_EQ(
        move_chunked(engine, std::vector<Piece>{{half, memory.data(), small}, {half + small, memory.data(), small}},
                     refuse),
        Status::NotConnected);
    EXPECT_EQ(move_chunked(engine, std::vector<Piece>{{half, memory.data(), kChunkBytes + 1}, {half, memory.data(), 1}},
                           refuse),
              Status::NotConnected);
    EXPECT_EQ(move_chunked(engine, Rectangle{half, small, memory.data(), small, small, 2}, refuse),
              Status::NotConnected);
    EXPECT_EQ(asked, 4);
}

TEST(SpaceCopy, chunks_count_batches_and_rectangles) {
    std::vector<std::byte> memory(4 * kChunkBytes);
    std::byte* half = memory.data() + 2 * kChunkBytes;
    CopyEngine& engine = CopyEngine::process();
    int asked = 0;
    const auto note = [&] {
        ++asked;
        return Status::Ok;
    };
    const std::vector<Piece> pieces{{half, memory.data(), 100},
                                    {half + 100, memory.data(), kChunkBytes - 100},
                                    {half + kChunkBytes, memory.data(), 1},
                                    {half, memory.data(), kChunkBytes + 1}};
    EXPECT_EQ(move_chunked(engine, pieces, note), Status::Ok);
    EXPECT_EQ(asked, 4);
    asked = 0;
    const std::size_t width = kChunkBytes / 2;
    EXPECT_EQ(move_chunked(engine, Rectangle{half, width, memory.data(), width, width, 3}, note), Status::Ok);
    EXPECT_EQ(asked, 2);
    asked = 0;
    const std::size_t wide = kChunkBytes + 1;
    EXPECT_EQ(move_chunked(engine, Rectangle{half - 4096, wide, memory.data(), wide, wide, 1}, note), Status::Ok);
    EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace memfabric
