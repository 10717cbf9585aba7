// SPDX-License-Identifier: Apache-2.0
//
// The two frames of a collective, as bytes: what a member says to the store, and what it hears when all are there.
// The same language as the Python messages (MessagePack arrays, the first element is the kind); everything else that a
// store may answer is left to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memfabric::store {

inline constexpr std::size_t kHeaderBytes = 5;  // four of length, big endian, and one of version
inline constexpr unsigned char kFrameVersion = 1;

struct Gather {
    std::uint64_t call;  // the same number again is the same call, repeated
    std::string_view group;
    std::uint64_t round;
    std::uint32_t rank;
    std::uint32_t size;
    std::string_view data;
    double timeout_s;
};

// Within the limits that every store keeps to; what is not may still be valid, and needs a longer look.
bool is_plain(const Gather& gather);

// The whole frame, header included.
std::string gather_frame(const Gather& gather);

// The length of the payload that the header announces; false if it is not a header of ours.
bool read_header(std::string_view header, std::size_t& payload_bytes);

enum class GatherAnswer {
    kArrived,   // everybody came, nobody brought data
    kGathered,  // everybody came; `parts` are the data in the order of ranks
    kOther,     // anything else, well formed or not
};

// `parts` point into the payload.
GatherAnswer read_gather_answer(std::string_view payload, std::uint32_t size, std::vector<std::string_view>& parts);

}  // namespace memfabric::store
