// SPDX-License-Identifier: Apache-2.0
#include "transfer/quantisation.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/cpu.h"

namespace memfabric {
namespace {

constexpr float kLowest = -128.0F;
constexpr float kHighest = 127.0F;

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

float from_fp16(std::uint16_t bits) {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1FU;
    const std::uint32_t fraction = bits & 0x3FFU;
    if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F80'0000U | fraction << 13);  // infinity, NaN
    if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    const float subnormal = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -subnormal : subnormal;
}

std::int8_t quantise_one(float number, float scale, float offset) {
    const float scaled = number * scale;
    const float moved = scaled + offset;
    if (std::isnan(moved)) return 0;
    return static_cast<std::int8_t>(std::nearbyint(std::clamp(moved, kLowest, kHighest)));
}

void quantise_portably(HalfType type, const QuantisedUnit& unit) noexcept {
    for (std::size_t i = 0; i < unit.count; ++i) {
        const float number = type == HalfType::Bf16 ? from_bf16(unit.source[i]) : from_fp16(unit.source[i]);
        unit.target[i] = quantise_one(number, unit.scale, unit.offset);
    }
}

#if defined(__x86_64__)

constexpr std::size_t kLanes = 8;

template <HalfType type>
__attribute__((target("avx2,f16c"))) __m256 load(const std::uint16_t* source) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    if constexpr (type == HalfType::Fp16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

template <HalfType type>
__attribute__((target("avx2,f16c"))) void quantise_lanes(const QuantisedUnit& unit) noexcept {
    const __m256 scale = _mm256_set1_ps(unit.scale);
    const __m256 offset = _mm256_set1_ps(unit.offset);
    const __m256 lowest = _mm256_set1_ps(kLowest);
    const __m256 highest = _mm256_set1_ps(kHighest);
    std::size_t i = 0;
    for (; i + kLanes <= unit.count; i += kLanes) {
        const __m256 moved = _mm256_add_ps(_mm256_mul_ps(load<type>(unit.source + i), scale), offset);
        const __m256 numbers = _mm256_and_ps(moved, _mm256_cmp_ps(moved, moved, _CMP_ORD_Q));  // NaN → 0
        const __m256i rounded = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(numbers, lowest), highest));
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(unit.target + i), _mm_packs_epi16(words, words));
    }
    const QuantisedUnit rest{unit.source + i, unit.target + i, unit.count - i, unit.scale, unit.offset};
    quantise_portably(type, rest);
}

void quantise_avx2(HalfType type, const QuantisedUnit& unit) noexcept {
    type == HalfType::Bf16 ? quantise_lanes<HalfType::Bf16>(unit) : quantise_lanes<HalfType::Fp16>(unit);
}

#endif

}  // namespace

std::span<const QuantisationKernel> quantisation_kernels() noexcept {
#if defined(__x86_64__)
    static const std::array kernels{QuantisationKernel{"avx2", quantise_avx2},
                                    QuantisationKernel{"portable", quantise_portably}};
    static const bool has_all = cpu_has_avx2() && __builtin_cpu_supports("f16c") != 0;
    return has_all ? std::span<const QuantisationKernel>(kernels) : std::span(kernels).last(1);
#else
    static const std::array kernels{QuantisationKernel{"portable", quantise_portably}};
    return kernels;
#endif
}

}  // namespace memfabric
