// SPDX-License-Identifier: Apache-2.0
//
// What one call asks to be copied, as a value: a piece, a batch or a rectangle. Queued copies keep it until their turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "copy/engine.h"

namespace memfabric {

struct Rectangle {
    std::byte* target;
    std::size_t target_pitch_bytes;
    const std::byte* source;
    std::size_t source_pitch_bytes;
    std::size_t width_bytes;
    std::size_t height;
};

// A batch as callers hold it: three arrays.
struct BatchArrays {
    std::span<const std::uint64_t> sources;
    std::span<const std::uint64_t> targets;
    std::span<const std::uint64_t> sizes;
};
inline constexpr std::size_t kMaxBatchPieces = std::size_t{1} << 20;

using CopyRequest = std::variant<Piece, std::vector<Piece>, Rectangle>;

inline std::size_t bytes_of(const Piece& piece) { return piece.size_bytes; }
inline std::size_t bytes_of(const Rectangle& rectangle) { return rectangle.width_bytes * rectangle.height; }

// A range of addresses, as a check sees it.
struct Extent {
    std::uintptr_t address;
    std::size_t size_bytes;
};

inline Extent source_of(const Piece& piece) {
    return {reinterpret_cast<std::uintptr_t>(piece.source), piece.size_bytes};
}
inline Extent target_of(const Piece& piece) {
    return {reinterpret_cast<std::uintptr_t>(piece.target), piece.size_bytes};
}

// From the first byte of the first row to the last byte of the last one. The rectangle's sizes must not overflow.
inline Extent source_of(const Rectangle& rectangle) {
    return {reinterpret_cast<std::uintptr_t>(rectangle.source),
            (rectangle.height - 1) * rectangle.source_pitch_bytes + rectangle.width_bytes};
}
inline Extent target_of(const Rectangle& rectangle) {
    return {reinterpret_cast<std::uintptr_t>(rectangle.target),
            (rectangle.height - 1) * rectangle.target_pitch_bytes + rectangle.width_bytes};
}

}  // namespace memfabric
