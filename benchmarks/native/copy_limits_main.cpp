// SPDX-License-Identifier: Apache-2.0
//
// Measures the copy engine beside the limits of copy_limits.h, in one run on the same buffers, and prints JSON.
// Source: private anonymous memory. Target: a shared memfd mapping, as segments of a pool are. Large shapes cycle
// through eight layouts, so that no copy finds its bytes in the caches.
//
//     copy_limits [rounds [shape]]
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "copy/engine.h"
#include "copy_limits.h"

namespace {

using memfabric::CopyEngine;
using memfabric::Piece;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kRegionBytes = 512 * kMiB;
constexpr std::size_t kLayouts = 8;

struct Layout {
    std::vector<uint64_t> targets;
    std::vector<uint64_t> sources;
    std::vector<uint64_t> sizes;
    std::vector<Piece> pieces;

    void add(std::byte* target, std::byte* source, std::size_t size_bytes) {
        targets.push_back(reinterpret_cast<uint64_t>(target));
        sources.push_back(reinterpret_cast<uint64_t>(source));
        sizes.push_back(size_bytes);
        pieces.push_back({target, source, size_bytes});
    }
};

struct Shape {
    const char* name;
    unsigned operations;  // of each candidate in each round
    std::vector<Layout> layouts;
};

struct Buffers {
    std::byte* source;
    std::byte* target;
};

Buffers map_buffers() {
    const int file = memfd_create("copy_limits", 0);
    void* target = MAP_FAILED;
    if (file >= 0 && ftruncate(file, kRegionBytes) == 0) {
        target = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    void* source = mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (target == MAP_FAILED || source == MAP_FAILED) {
        std::perror("copy_limits: mapping 2 x 512 MiB");
        std::exit(1);
    }
    close(file);
    std::memset(source, 1, kRegionBytes);
    std::memset(target, 2, kRegionBytes);
    return {static_cast<std::byte*>(source), static_cast<std::byte*>(target)};
}

std::vector<std::size_t> distinct(std::mt19937_64& random, std::size_t count, std::size_t limit) {
    std::vector<std::size_t> all(limit);
    for (std::size_t i = 0; i < limit; ++i) all[i] = i;
    for (std::size_t i = 0; i < count; ++i) std::swap(all[i], all[i + random() % (limit - i)]);
    all.resize(count);
    return all;
}

// One contiguous piece; `layouts` of them far apart, or one that stays in the caches.
Shape contiguous(const Buffers& buffers, const char* name, std::size_t size_bytes, unsigned operations,
                 std::size_t layouts) {
    Shape shape{name, operations, std::vector<Layout>(layouts)};
    for (std::size_t i = 0; i < layouts; ++i) {
        shape.layouts[i].add(buffers.target + i * size_bytes, buffers.source + i * size_bytes, size_bytes);
    }
    return shape;
}

void add_scattered(Layout& layout, const Buffers& buffers, std::mt19937_64& random, std::size_t count,
                   std::size_t size_bytes, std::size_t region_offset, std::size_t region_bytes) {
    const auto to = distinct(random, count, region_bytes / size_bytes);
    const auto from = distinct(random, count, region_bytes / size_bytes);
    for (std::size_t i = 0; i < count; ++i) {
        layout.add(buffers.target + region_offset + to[i] * size_bytes,
                   buffers.source + region_offset + from[i] * size_bytes, size_bytes);
    }
}

std::vector<Shape> shapes(const Buffers& buffers) {
    std::mt19937_64 random(20240607);
    std::vector<Shape> all;
    all.push_back(contiguous(buffers, "4KiB", 4 * kKiB, 2000, 1));
    all.push_back(contiguous(buffers, "64KiB", 64 * kKiB, 500, 1));
    all.push_back(contiguous(buffers, "256KiB", 256 * kKiB, 200, 1));
    all.push_back(contiguous(buffers, "1MiB", kMiB, 64, 1));
    all.push_back(contiguous(buffers, "1MiB-cold", kMiB, 64, 512));
    all.push_back(contiguous(buffers, "2MiB", 2 * kMiB, 32, 1));
    all.push_back(contiguous(buffers, "2MiB-cold", 2 * kMiB, 32, 256));
    all.push_back(contiguous(buffers, "4MiB-cold", 4 * kMiB, 16, 128));
    all.push_back(contiguous(buffers, "64MiB", 64 * kMiB, 8, kLayouts));
    Shape kv{"kv122", 16, std::vector<Layout>(kLayouts)};
    Shape pages{"4096x4KiB", 8, std::vector<Layout>(kLayouts)};
    for (std::size_t i = 0; i < kLayouts; ++i) {
        Layout keys;
        Layout values;
        add_scattered(keys, buffers, random, 61, 128 * kKiB, 0, 256 * kMiB);
        add_scattered(values, buffers, random, 61, 16 * kKiB, 256 * kMiB, 32 * kMiB);
        for (std::size_t layer = 0; layer < 61; ++layer) {
            for (const Layout* part : {&keys, &values}) {
                const Piece& piece = part->pieces[layer];
                kv.layouts[i].add(piece.target, const_cast<std::byte*>(piece.source), piece.size_bytes);
            }
        }
        add_scattered(pages.layouts[i], buffers, random, 4096, 4 * kKiB, 0, kRegionBytes);
    }
    all.push_back(std::move(kv));
    all.push_back(std::move(pages));
    return all;
}

struct Candidate {
    const char* name;
    bool limit;
    std::function<double(const Layout&)> copy_once;
    std::vector<double> times_us;
};

double engine_once(const Layout& layout) {
    const Clock::time_point start = Clock::now();
    if (layout.pieces.size() == 1) {
        CopyEngine::process().copy(layout.pieces[0].target, layout.pieces[0].source, layout.pieces[0].size_bytes);
    } else {
        CopyEngine::process().copy_batch(layout.pieces);
    }
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// After a pause long enough for the workers to sleep: the price of waking them is in the figure.
double engine_after_pause(const Layout& layout) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return engine_once(layout);
}

double limit_once(int kind, const Layout& layout) {
    return mf_limit(kind, layout.targets.data(), layout.sources.data(), layout.sizes.data(),
                    static_cast<uint32_t>(layout.sizes.size()));
}

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
}

void measure(const Shape& shape, unsigned rounds, bool last) {
    std::vector<Candidate> candidates;
    candidates.push_back({"memcpy", true, [](const Layout& l) { return limit_once(MF_LIMIT_MEMCPY, l); }, {}});
    candidates.push_back({"stream", true, [](const Layout& l) { return limit_once(MF_LIMIT_STREAM, l); }, {}});
    candidates.push_back(
        {"memcpy_two_threads", true, [](const Layout& l) { return limit_once(MF_LIMIT_MEMCPY_TWO_THREADS, l); }, {}});
    candidates.push_back({"engine", false, engine_once, {}});
    candidates.push_back({"engine_after_pause", false, engine_after_pause, {}});

    std::size_t next_layout = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        for (Candidate& candidate : candidates) {
            const bool needs_second_thread = std::strcmp(candidate.name, "memcpy_two_threads") == 0;
            if (needs_second_thread) mf_limit_start_spinning();
            const bool pauses = std::strcmp(candidate.name, "engine_after_pause") == 0;
            const unsigned operations = pauses ? std::min(shape.operations, 16U) : shape.operations;
            for (unsigned i = 0; i < operations; ++i) {
                const Layout& layout = shape.layouts[next_layout++ % shape.layouts.size()];
                const double time_us = candidate.copy_once(layout);
                if (i != 0) candidate.times_us.push_back(time_us);  // the first one pays for the change of candidate
            }
            if (needs_second_thread) mf_limit_stop_spinning();
        }
    }
    double best_limit_us = 1e300;
    std::printf("  \"%s\": {", shape.name);
    for (const Candidate& candidate : candidates) {
        const double median_us = median(candidate.times_us);
        if (candidate.limit) best_limit_us = std::min(best_limit_us, median_us);
        std::printf("\"%s_us\": %.2f, ", candidate.name, median_us);
    }
    std::printf("\"engine_to_best_limit\": %.2f}%s\n", best_limit_us / median(candidates[3].times_us), last ? "" : ",");
    std::fflush(stdout);
}

}  // namespace

int main(int argument_count, char** arguments) {
    const unsigned rounds = argument_count > 1 ? static_cast<unsigned>(std::atoi(arguments[1])) : 5;
    if (rounds == 0) {
        std::fprintf(stderr, "usage: copy_limits [rounds [shape]], rounds at least 1\n");
        return 2;
    }
    std::vector<Shape> selected = shapes(map_buffers());
    if (argument_count > 2)
        std::erase_if(selected, [&](const Shape& shape) { return std::strcmp(shape.name, arguments[2]) != 0; });
    std::printf("{\n");
    for (const Shape& shape : selected) measure(shape, rounds, &shape == &selected.back());
    std::printf("}\n");
    CopyEngine::process().shut_down();
    return 0;
}
