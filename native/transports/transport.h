// SPDX-License-Identifier: Apache-2.0
//
// One way to move bytes between this process and one peer. What is above decides whether a move may be made and which
// way it goes (the resolver of a space, the registration page of a peer); a transport only moves.
//
//     who calls      any thread, several at a time
//     begin          start(move, completion): all of the move is known from the start
//     end            the completion is finished exactly once: before `start` returns if the transport is synchronous,
//                    otherwise by whoever waits in `progress`, or by a thread of the transport's own
//     early end      cancel(completion): the move ends soon, with what was moved until then; never nothing at all
//     ownership      the caller keeps the move, its pieces, our side of the memory and the completion until the end
//
// Bytes are in the target's memory when a write is done, and in ours when a read is. After the end, no byte moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/traffic.h"
#include "copy/request.h"
#include "endpoint/address.h"
#include "transports/completion.h"

namespace memfabric {

enum class Direction : std::uint8_t { Read, Write };  // seen from this process

constexpr Operation operation_of(Direction direction) {
    return direction == Direction::Write ? Operation::Write : Operation::Read;
}

// Pieces are independent of each other, none is empty. The peer's sides (targets of a Write, sources of a Read) are its
// addresses, not ours; a transport's traits say if that is the same.
struct Move {
    Direction direction;
    std::span<const Piece> pieces;
    std::size_t total_bytes;
};

class Transport {
public:
    struct Traits {
        Route route;
        bool synchronous;   // `start` returns at the end; `cancel` has nothing to do
        bool peer_is_idle;  // the peer's process does nothing for a move, it may even be stopped
        bool addresses_are_ours;
        // The most that one move should have: longer ones are made in parts, between which they can be ended and the
        // peer's registrations are looked at again. 0: any, because it can be cancelled.
        std::size_t part_bytes;
    };

    virtual ~Transport() = default;
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    virtual const Traits& traits() const noexcept = 0;
    virtual void start(const Move& move, Completion& completion) noexcept = 0;
    virtual void cancel(Completion& completion) noexcept = 0;
    // Waits until the move has ended, or so long, and drives it meanwhile if nobody else does. One thread at a time for
    // one move; returns early when the thread is interrupted. False: it is certain that nothing has moved meanwhile.
    virtual bool progress(Completion& completion, Deadline until) noexcept;

    // Until the end, whatever comes: for what ends soon in any case.
    void finish(Completion& completion) noexcept;

protected:
    Transport() = default;
};

// A piece has a side of ours and a side of the peer's; which is source and which is target depends on the direction.
inline Piece piece_of(Direction direction, std::uint64_t buffer, std::uint64_t peer_buffer, std::uint64_t size_bytes) {
    const bool write = direction == Direction::Write;
    return {reinterpret_cast<std::byte*>(write ? peer_buffer : buffer),
            reinterpret_cast<const std::byte*>(write ? buffer : peer_buffer), size_bytes};
}

inline std::uint64_t remote_of(Direction direction, const Piece& piece) {
    return reinterpret_cast<std::uint64_t>(direction == Direction::Write ? piece.target : piece.source);
}

inline std::uint64_t local_of(Direction direction, const Piece& piece) {
    return reinterpret_cast<std::uint64_t>(direction == Direction::Write ? piece.source : piece.target);
}

inline Extent local_extent(Direction direction, const Piece& piece) {
    return {local_of(direction, piece), piece.size_bytes};
}

// The same piece with the peer's side at its place in our own mapping of its memory.
inline Piece with_remote_at(Direction direction, const Piece& piece, std::byte* remote) {
    return direction == Direction::Write ? Piece{remote, piece.source, piece.size_bytes}
                                         : Piece{piece.target, remote, piece.size_bytes};
}

}  // namespace memfabric
