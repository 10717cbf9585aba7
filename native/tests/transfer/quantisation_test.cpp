// SPDX-License-Identifier: Apache-2.0
#include "transfer/quantisation.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/assertions.h"

namespace memfabric {
namespace {

std::uint16_t bf16(float number) {
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return static_cast<std::uint16_t>(bits >> 16);
}

TEST(Quantisation, rounds_half_to_even_and_saturates) {
    const std::vector<float> numbers{0.5F,    1.5F,    2.5F,   -0.5F,    -1.5F,     127.0F, 128.0F, 1e30F,
                                     -128.0F, -129.0F, -1e30F, INFINITY, -INFINITY, NAN,    0.0F};
    const std::vector<int> expected{0, 2, 2, 0, -2, 127, 127, 127, -128, -128, -128, 127, -128, 0, 0};
    std::vector<std::uint16_t> source;
    for (const float number : numbers) source.push_back(bf16(number));
    for (const QuantisationKernel& kernel : quantisation_kernels()) {
        SCOPED_TRACE(kernel.name);
        std::vector<std::int8_t> target(source.size());
        kernel.quantise(HalfType::Bf16, {source.data(), target.data(), source.size(), 1, 0});
        for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(int{target[i]}, expected[i]);
    }
}

TEST(Quantisation, of_fp16_covers_all_numbers) {
    std::vector<std::uint16_t> source(65536);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint16_t>(i);
    const auto kernels = quantisation_kernels();
    std::vector<std::int8_t> last(source.size());
    kernels.back().quantise(HalfType::Fp16, {source.data(), last.data(), source.size(), 3.7F, -0.3F});
    EXPECT_EQ(int{last[0x3C00]}, 3);    // 1.0 -> 3.4
    EXPECT_EQ(int{last[0xC000]}, -8);   // -2.0 -> -7.7
    EXPECT_EQ(int{last[0x7BFF]}, 127);  // 65504
    EXPECT_EQ(int{last[0x7E00]}, 0);    // NaN
    for (const QuantisationKernel& kernel : kernels) {
        SCOPED_TRACE(kernel.name);
        std::vector<std::int8_t> target(source.size());
        kernel.quantise(HalfType::Fp16, {source.data(), target.data(), source.size(), 3.7F, -0.3F});
        EXPECT_EQ(target, last);
    }
}

TEST(Quantisation, kernels_agree_on_every_length) {
    std::mt19937 random(3);
    std::vector<std::uint16_t> source(100);
    for (auto& bits : source) bits = static_cast<std::uint16_t>(random());
    for (const HalfType type : {HalfType::Bf16, HalfType::Fp16}) {
        for (std::size_t count = 0; count <= source.size(); ++count) {
            std::vector<std::int8_t> expected(source.size(), 77);
            quantisation_kernels().back().quantise(type, {source.data(), expected.data(), count, 0.1F, 5});
            for (const QuantisationKernel& kernel : quantisation_kernels()) {
                SCOPED_TRACE(kernel.name);
                std::vector<std::int8_t> target(source.size(), 77);
                kernel.quantise(type, {source.data(), target.data(), count, 0.1F, 5});
                EXPECT_EQ(target, expected);
            }
        }
    }
}

}  // namespace
}  // namespace memfabric
