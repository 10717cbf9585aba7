// SPDX-License-Identifier: Apache-2.0
//
// The shapes of benchmarks/support/shapes.py as a file, and the loop of a driver: obey lines, time writes, answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace mf_bench {

inline constexpr std::size_t kRegionBytes = std::size_t{512} << 20;

struct Piece {
    std::uint64_t source;
    std::uint64_t target;
    std::uint64_t size;
};
using Layout = std::vector<Piece>;
using Shape = std::vector<Layout>;

[[noreturn]] inline void die(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}

// Numbers of 64 bits: how many shapes; for each how many layouts; for each how many pieces, and the pieces.
inline std::vector<Shape> read_shapes(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (file == nullptr) die(std::string("cannot read ") + path);
    const auto number = [file] {
        std::uint64_t value = 0;
        if (std::fread(&value, sizeof value, 1, file) != 1) die("the file of layouts is too short");
        return value;
    };
    std::vector<Shape> shapes(number());
    for (Shape& shape : shapes) {
        shape.resize(number());
        for (Layout& layout : shape) {
            layout.resize(number());
            for (Piece& piece : layout) piece = {number(), number(), number()};
        }
    }
    std::fclose(file);
    return shapes;
}

// Many writes of one size: `operations` over all streams, at most `window` of a stream unanswered at a time.
struct Flow {
    std::size_t size;
    std::size_t streams;
    std::size_t window;
    std::size_t operations;

    std::size_t offset(std::size_t stream, std::size_t operation) const {
        const std::size_t part = kRegionBytes / streams;
        return stream * part + operation * size % part;
    }
};

// "shape operations" or "flow size streams window operations"; whoever cannot do the latter has no `flow`.
template <typename Write, typename FlowOf = void (*)(const Flow&)>
void obey(const std::vector<Shape>& shapes, Write write, FlowOf flow_of = [](const Flow&) { die("no flows"); }) {
    std::printf("ready\n");
    std::fflush(stdout);
    char word[32];
    while (std::scanf("%31s", word) == 1) {
        if (std::string(word) == "flow") {
            Flow flow{};
            if (std::scanf("%zu %zu %zu %zu", &flow.size, &flow.streams, &flow.window, &flow.operations) != 4) return;
            const auto start = std::chrono::steady_clock::now();
            flow_of(flow);
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            std::printf("flowed %.6f\n", took.count());
            std::fflush(stdout);
            continue;
        }
        const std::size_t shape = std::strtoul(word, nullptr, 10);
        std::size_t operations = 0;
        if (std::scanf("%zu", &operations) != 1 || shape >= shapes.size()) return;
        std::printf("samples [");
        for (std::size_t i = 0; i < operations; ++i) {
            const auto start = std::chrono::steady_clock::now();
            write(shapes[shape][i % shapes[shape].size()]);
            const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
            std::printf("%s%.2f", i == 0 ? "" : ", ", took.count());
        }
        std::printf("]\n");
        std::fflush(stdout);
    }
}

}  // namespace mf_bench
