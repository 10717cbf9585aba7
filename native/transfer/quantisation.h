// SPDX-License-Identifier: Apache-2.0
//
// 16-bit floating-point numbers to 8-bit integers, unit by unit:
//
//     q = saturate(round(x * scale + offset))
//
// computed in 32-bit floats with two roundings (no fused multiply-add), rounded half to even, saturated to -128 ...
// 127; NaN becomes 0. numpy gives the same bytes: np.clip(np.rint(x.astype("f4") * scale + offset), -128, 127).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace memfabric {

enum class HalfType : std::uint32_t { Bf16 = 0, Fp16 = 1 };

struct QuantisedUnit {
    const std::uint16_t* source;
    std::int8_t* target;
    std::size_t count;
    float scale;
    float offset;
};

// One loop for one instruction set.
struct QuantisationKernel {
    const char* name;
    void (*quantise)(HalfType type, const QuantisedUnit& unit) noexcept;
};

// Every kernel that this machine can run, best first; never empty. All give the same bytes.
std::span<const QuantisationKernel> quantisation_kernels() noexcept;

}  // namespace memfabric
