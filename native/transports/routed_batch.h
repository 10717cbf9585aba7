// SPDX-License-Identifier: Apache-2.0
//
// A request split by route: for every transport and direction the pieces that go this way. Pools and transfers split
// once, then everything moves: what runs by itself first, beside it what this thread has to do.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "copy/job.h"
#include "transports/transport.h"

namespace memfabric {

// Thread contract: one thread. The transports outlive the batch; so does the memory on both sides.
class RoutedBatch {
public:
    struct Leg {
        Transport* transport;
        Direction direction;
        std::size_t total_bytes = 0;
        std::vector<Piece> pieces;

        Move move() const { return {direction, pieces, total_bytes}; }
    };
    // Asked now and then: a failure ends everything early. It leaves a sentence in the thread's last error.
    using MayGoOn = std::function<Status()>;
    static constexpr std::chrono::nanoseconds kNoLimit = std::chrono::nanoseconds::max();

    // `expected` more pieces are likely to follow this one.
    void add(Transport& transport, Direction direction, const Piece& piece, std::size_t expected = 0) {
        if (last_ >= legs_.size() || legs_[last_].transport != &transport || legs_[last_].direction != direction)
            [[unlikely]]
            select(transport, direction, expected);
        Leg& leg = legs_[last_];
        leg.pieces.push_back(piece);
        leg.total_bytes += piece.size_bytes;
    }
    void clear() { legs_.clear(); }

    const std::vector<Leg>& legs() const { return legs_; }
    bool synchronous() const;

    // Returns when no byte moves any more. Of several failures the first one counts. What is under way elsewhere is
    // ended when nothing moves for `stall_limit`.
    Outcome run(const MayGoOn& may_go_on, std::chrono::nanoseconds stall_limit = kNoLimit) const;
    // The same for a synchronous batch that is short enough not to be ended early.
    Outcome run() const;

private:
    void select(Transport& transport, Direction direction, std::size_t expected);

    std::vector<Leg> legs_;
    std::size_t last_ = 0;  // that a piece was added to
};

// Calls `each(part)` for parts of at most `longest_bytes`, in order, until it fails. Where both sides are addresses of
// ours, a piece that is copied onto itself stays whole: only then it is read before it is overwritten.
template <typename Each>
Status for_each_part(const Move& move, std::size_t longest_bytes, bool addresses_are_ours, Each each) {
    std::vector<Piece> part;
    std::size_t part_bytes = 0;
    std::size_t left_bytes = move.total_bytes;
    for (const Piece& piece : move.pieces) {
        const bool stays_whole = addresses_are_ours && overlap(piece.target, piece.source, piece.size_bytes);
        for (std::size_t offset = 0; offset < piece.size_bytes;) {
            const std::size_t rest_bytes = piece.size_bytes - offset;
            const std::size_t taken_bytes = stays_whole ? rest_bytes : std::min(rest_bytes, longest_bytes - part_bytes);
            part.push_back({piece.target + offset, piece.source + offset, taken_bytes});
            part_bytes += taken_bytes;
            offset += taken_bytes;
            left_bytes -= taken_bytes;
            if (part_bytes < longest_bytes && left_bytes != 0) continue;
            const Status status = each(Move{move.direction, part, part_bytes});
            if (status != Status::Ok) return status;
            part.clear();
            part_bytes = 0;
        }
    }
    return Status::Ok;
}

}  // namespace memfabric
