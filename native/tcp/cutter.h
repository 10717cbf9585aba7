// SPDX-License-Identifier: Apache-2.0
//
// Cuts a move into requests: pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tcp/wire.h"
#include "transports/transport.h"

namespace memfabric::tcp {

// A move of several requests begins with checks of all that it touches at the peer: nothing is moved if any of it must
// not be. Thread contract: one thread. The move's pieces outlive it.
class Cutter {
public:
    struct Part {
        bool is_check = false;
        std::size_t size_bytes = 0;  // to move
        std::vector<Piece> pieces;
    };

    explicit Cutter(const Move& move) : move_(move) {
        const bool fits_into_one = move.pieces.size() <= kMostPieces && move.total_bytes <= kMostPayloadBytes;
        if (fits_into_one) to_check_ = move.pieces.size();
    }

    bool exhausted() const { return piece_ == move_.pieces.size(); }
    bool checks() const { return to_check_ < move_.pieces.size(); }  // the next part is a check

    void next(Part& part) {
        part = {};
        part.is_check = checks();
        part.is_check ? check(part) : cut(part);
    }

private:
    // Neighbouring pieces are one.
    void check(Part& part) {
        for (; checks(); ++to_check_) {
            const Piece& piece = move_.pieces[to_check_];
            if (!part.pieces.empty()) {
                Piece& last = part.pieces.back();
                if (remote_of(move_.direction, last) + last.size_bytes == remote_of(move_.direction, piece)) {
                    last.size_bytes += piece.size_bytes;
                    continue;
                }
            }
            if (part.pieces.size() == kMostPieces) return;
            part.pieces.push_back(piece);
        }
    }

    void cut(Part& part) {
        while (!exhausted() && part.pieces.size() < kMostPieces && part.size_bytes < kMostPayloadBytes) {
            const Piece& whole = move_.pieces[piece_];
            const std::size_t taken_bytes =
                std::min<std::size_t>(whole.size_bytes - offset_, kMostPayloadBytes - part.size_bytes);
            part.pieces.push_back({whole.target + offset_, whole.source + offset_, taken_bytes});
            part.size_bytes += taken_bytes;
            offset_ += taken_bytes;
            if (offset_ != whole.size_bytes) continue;
            ++piece_;
            offset_ = 0;
        }
    }

    const Move move_;
    std::size_t to_check_ = 0;
    std::size_t piece_ = 0;
    std::size_t offset_ = 0;
};

}  // namespace memfabric::tcp
