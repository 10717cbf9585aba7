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

template <typename Write>
void obey(const std::vector<Shape>& shapes, Write write) {
    std::printf("ready\n");
    std::fflush(stdout);
    std::size_t shape = 0;
    std::size_t operations = 0;
    while (std::scanf("%zu %zu", &shape, &operations) == 2 && shape < shapes.size()) {
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
