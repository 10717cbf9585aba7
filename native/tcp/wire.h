// SPDX-License-Identifier: Apache-2.0
//
// What stands on a data connection once its initiator was let in. Requests go one way and are answered in their order:
//
//   check   Request, further pieces            →   Reply: may all of it be touched?
//   write   Request, further pieces, payload   →   Reply
//   read    Request, further pieces            →   Reply, and if it says that bytes follow: payload, ReadEnd
//   fence   Request, further pieces            →   Reply: the connections of these numbers move nothing any more
//
// A move that needs several requests is checked first, as a whole: once a request of it was refused, all later ones
// are.
//
// All numbers are little-endian. A request names addresses of the target, which looks at every one of them before it
// moves a byte. Answers are not trusted either: what a target may say, and where its bytes go, is known from the
// request. Anything malformed ends the connection.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace memfabric::tcp {

static_assert(std::endian::native == std::endian::little, "frames are sent as they lie in memory");

// One request: enough for the pieces to fit into one system call, and short enough to end a move between two of them.
inline constexpr std::uint32_t kMostPieces = 1000;
inline constexpr std::uint64_t kMostPayloadBytes = std::uint64_t{2} << 20;

enum class Operation : std::uint32_t { Read = 1, Write = 2, Check = 3, Fence = 4 };

enum class Verdict : std::uint32_t {
    Done = 0,
    NotExposed = 1,  // a piece is not (or not any more) in memory that may be touched; nothing after that was moved
    NotMapped = 2,   // it may be touched, but there is no memory
};

inline bool is_refusal(Verdict verdict) { return verdict == Verdict::NotExposed || verdict == Verdict::NotMapped; }

struct RemotePiece {
    std::uint64_t address;  // of a fence: the number of a connection
    std::uint64_t size_bytes;
};

struct Request {
    static constexpr std::uint32_t kMagic = 0x5152'464d;

    std::uint32_t magic = kMagic;
    Operation operation{};
    std::uint32_t piece_count = 0;
    std::uint32_t move = 0;      // that it is a part of; numbers of the connection, from 1 on
    std::uint64_t sequence = 0;  // the same for requests
    std::uint64_t payload_bytes = 0;
    RemotePiece first{};  // the others follow the request
};

struct Reply {
    static constexpr std::uint32_t kMagic = 0x5052'464d;

    std::uint32_t magic = kMagic;
    Verdict verdict{};
    std::uint32_t piece = 0;  // that the verdict is about
    std::uint32_t reserved = 0;
    std::uint64_t sequence = 0;
    std::uint64_t payload_bytes = 0;  // that follow
    std::uint64_t moved_bytes = 0;    // of a write: in place, from its beginning
};

// What became of the payload of a read: its bytes count only if this says so.
struct ReadEnd {
    Verdict verdict{};
    std::uint32_t piece = 0;
};

static_assert(sizeof(Request) == 48 && sizeof(Reply) == 40 && sizeof(ReadEnd) == 8 && sizeof(RemotePiece) == 16);
static_assert(std::is_trivially_copyable_v<Request> && std::is_trivially_copyable_v<Reply>);

// The header alone; its pieces are looked at when they are there.
inline bool is_well_formed(const Request& request) {
    if (request.magic != Request::kMagic || request.piece_count == 0 || request.piece_count > kMostPieces) return false;
    if (request.operation == Operation::Check || request.operation == Operation::Fence) {
        return request.payload_bytes == 0;
    }
    return (request.operation == Operation::Read || request.operation == Operation::Write) &&
           request.payload_bytes != 0 && request.payload_bytes <= kMostPayloadBytes;
}

}  // namespace memfabric::tcp
