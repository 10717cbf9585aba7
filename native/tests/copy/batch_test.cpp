// SPDX-License-Identifier: Apache-2.0
//
// Batches and rows with layouts drawn from seeds; a failure prints the seed, which alone reproduces it.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "copy/engine.h"
#include "tests/assertions.h"
#include "tests/bytes.h"
#include "tests/copy/fenced_memory.h"

using namespace memfabric;
using tests::FencedMemory;
using tests::fill;
using tests::kMiB;

namespace {

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::size_t up_to(std::size_t limit) { return engine_() % (limit + 1); }
    bool one_in(std::size_t n) { return up_to(n - 1) == 0; }

private:
    std::mt19937_64 engine_;
};

std::size_t draw_size(Random& random, std::size_t largest) {
    switch (random.up_to(3)) {
        case 0:
            return random.up_to(64);
        case 1:
            return 4096;
        case 2:
            return random.up_to(largest / 16);
        default:
            return random.up_to(largest);
    }
}

struct Offsets {
    std::size_t to;
    std::size_t from;
    std::size_t size_bytes;
};

// The lower half of the memory is only read. Targets are carved one after the other from the upper half; one in eight
// overlaps its own source there.
std::vector<Offsets> draw_batch(Random& random, std::size_t half_bytes, std::size_t largest) {
    std::vector<Offsets> batch;
    for (std::size_t at = half_bytes + random.up_to(100);;) {
        const std::size_t size_bytes = draw_size(random, largest);
        const std::size_t shift = random.one_in(8) ? random.up_to(size_bytes) : 0;
        if (at + size_bytes + shift > 2 * half_bytes) return batch;
        if (shift == 0) {
            batch.push_back({at, random.up_to(half_bytes - size_bytes), size_bytes});
        } else if (random.one_in(2)) {
            batch.push_back({at, at + shift, size_bytes});
        } else {
            batch.push_back({at + shift, at, size_bytes});
        }
        at += size_bytes + shift + random.up_to(100);
    }
}

void check_batch(CopyEngine& engine, std::uint64_t seed, std::size_t half_bytes, std::size_t largest) {
    Random random(seed);
    FencedMemory real(2 * half_bytes);
    std::vector<std::byte> model(2 * half_bytes);
    fill(real.bytes(), seed);
    fill(model, seed);
    std::vector<Offsets> batch = draw_batch(random, half_bytes, largest);
    std::shuffle(batch.begin(), batch.end(), std::mt19937_64(seed));
    std::vector<Piece> pieces;
    for (const Offsets& piece : batch) {
        std::memmove(model.data() + piece.to, model.data() + piece.from, piece.size_bytes);
        pieces.push_back({real.begin() + piece.to, real.begin() + piece.from, piece.size_bytes});
    }
    engine.copy_batch(pieces);
    EXPECT_EQ(std::memcmp(model.data(), real.begin(), model.size()), 0) << "seed " << seed;
}

void check_rows(CopyEngine& engine, std::uint64_t seed, std::size_t widest, std::size_t highest) {
    Random random(seed);
    const std::size_t width = 1 + random.up_to(widest - 1);
    const std::size_t height = 1 + random.up_to(highest - 1);
    const std::size_t target_pitch = width + (random.one_in(3) ? 0 : random.up_to(200));
    const std::size_t source_pitch = width + (random.one_in(3) ? 0 : random.up_to(200));
    FencedMemory source(source_pitch * height);
    FencedMemory target(target_pitch * height);
    fill(source.bytes(), seed);
    fill(target.bytes(), seed + 1);
    std::vector<std::byte> model(target.begin(), target.end());
    // Both planes end at the fence: the last row has no padding behind it.
    std::byte* to = target.end() - ((height - 1) * target_pitch + width);
    const std::byte* from = source.end() - ((height - 1) * source_pitch + width);
    for (std::size_t row = 0; row < height; ++row) {
        std::memcpy(model.data() + (to - target.begin()) + row * target_pitch, from + row * source_pitch, width);
    }
    engine.copy_2d(to, target_pitch, from, source_pitch, width, height);
    EXPECT_EQ(std::memcmp(model.data(), target.begin(), model.size()), 0) << "seed " << seed;
}

}  // namespace

TEST(CopyBatch, of_random_layouts) {
    CopyEngine engine;
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        engine.set_thread_limit(static_cast<unsigned>(1 + seed % 4));
        check_batch(engine, seed, 64 * 1024, 8 * 1024);
        check_batch(engine, seed, kMiB, 300 * 1024);
    }
}

TEST(CopyBatch, large_ones_of_random_layouts) {
    CopyEngine engine;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        engine.set_thread_limit(static_cast<unsigned>(1 + seed % 4));
        check_batch(engine, seed, 4 * kMiB, kMiB);
        check_batch(engine, seed, 4 * kMiB, 8 * 1024);
    }
}

TEST(CopyBatch, of_one_giant_among_dwarfs) {
    CopyEngine engine;
    engine.set_thread_limit(4);
    FencedMemory source(9 * kMiB);
    FencedMemory target(9 * kMiB);
    fill(source.bytes(), 3);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < 1000; ++i) pieces.push_back({target.begin() + i, source.begin() + i, 1});
    pieces.insert(pieces.begin() + 500, {target.begin() + 1000, source.begin() + 1000, 9 * kMiB - 1000});
    engine.copy_batch(pieces);
    EXPECT_EQ(std::memcmp(target.begin(), source.begin(), 9 * kMiB), 0);
}

TEST(CopyRows, of_random_planes) {
    CopyEngine engine;
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        engine.set_thread_limit(static_cast<unsigned>(1 + seed % 4));
        check_rows(engine, seed, 100, 300);
        check_rows(engine, seed, 3000, 200);
    }
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        engine.set_thread_limit(static_cast<unsigned>(1 + seed % 4));
        check_rows(engine, seed, 20, 200'000);
        check_rows(engine, seed, kMiB, 6);
        check_rows(engine, seed, 6 * kMiB, 2);
    }
}

TEST(CopyRows, that_overlap_with_equal_pitch) {
    CopyEngine engine;
    engine.set_thread_limit(4);
    constexpr std::size_t kPitch = 1000;
    constexpr std::size_t kWidth = 900;
    constexpr std::size_t kHeight = 500;
    for (const std::size_t shift : {std::size_t{1}, std::size_t{450}, kPitch, kPitch * 7 + 3, kPitch * 400}) {
        for (const bool upwards : {true, false}) {
            FencedMemory memory(kPitch * kHeight + shift);
            fill(memory.bytes(), shift);
            std::byte* low = memory.begin();
            std::byte* high = low + shift;
            std::byte* target = upwards ? high : low;
            const std::byte* source = upwards ? low : high;
            const std::vector<std::byte> before(source, source + kPitch * (kHeight - 1) + kWidth);
            engine.copy_2d(target, kPitch, source, kPitch, kWidth, kHeight);
            for (std::size_t row = 0; row < kHeight; ++row) {
                ASSERT_EQ(std::memcmp(target + row * kPitch, before.data() + row * kPitch, kWidth), 0)
                    << "shift " << shift;
            }
        }
    }
}
