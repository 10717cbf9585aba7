// SPDX-License-Identifier: Apache-2.0
//
// What a copy promises about its two sides. An address has a set of classes; a copy type demands one on each side.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace memfabric {

// Bits. Local: this process may load and store it as its own. Global: it lies in the object's address range.
enum Classes : std::uint8_t {
    kLocal = 1,
    kLocalHost = 2,
    kGlobal = 4,
    kGlobalHost = 8,

    kPlainMemory = kLocal | kLocalHost,  // there is no device that could tell the two apart
    kOwnDram = kLocal | kLocalHost | kGlobal | kGlobalHost,
    kOwnHbm = kLocal | kGlobal,
    kOtherDram = kGlobal | kGlobalHost,
    kOtherHbm = kGlobal,
    kAnyMemory = kOwnDram,
};

struct CopyType {
    const char* name;
    Classes source;
    Classes target;
};

// In the order of the documents' numbers (BmCopyType).
inline constexpr std::array<CopyType, 10> kCopyTypes{{
    {"L2G", kLocal, kGlobal},
    {"G2L", kGlobal, kLocal},
    {"G2H", kGlobal, kLocalHost},
    {"H2G", kLocalHost, kGlobal},
    {"L2GH", kLocal, kGlobalHost},
    {"GH2L", kGlobalHost, kLocal},
    {"GH2H", kGlobalHost, kLocalHost},
    {"H2GH", kLocalHost, kGlobalHost},
    {"G2G", kGlobal, kGlobal},
    {"AUTO", kAnyMemory, kAnyMemory},
}};
inline constexpr std::uint32_t kAutoCopy = 9;

// Flags of a copy; other bits are ignored.
inline constexpr std::uint64_t kFlagAsynchronous = 1;  // queued on the object's own stream
inline constexpr std::uint64_t kFlagStream = 4;        // queued on the stream that the call names
inline constexpr bool is_queued(std::uint64_t flags) { return (flags & (kFlagAsynchronous | kFlagStream)) != 0; }

const char* describe(Classes one);  // of a single class, for sentences

}  // namespace memfabric
