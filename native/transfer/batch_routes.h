// SPDX-License-Identifier: Apache-2.0
//
// Which pieces of a batch are plain copies, and which go through the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/peers.h"
#include "transfer/piece_sides.h"
#include "transfer/registration_page.h"

namespace memfabric {

// Most batches have one route: pieces for the kernel are copied only where both occur.
class BatchRoutes {
public:
    // The index of the first piece that may not be transferred, or their number.
    std::size_t sort(Peer& peer, Direction direction, std::span<const Piece> pieces) {
        for (;;) {
            RegistrationScan scan(peer.words());
            const std::size_t end = sort(peer, direction, pieces, scan);
            if (scan.current()) return end;
        }
    }
    std::span<const Piece> direct() const { return direct_; }
    std::span<const Piece> through_kernel() const { return through_kernel_; }

private:
    std::size_t sort(Peer& peer, Direction direction, std::span<const Piece> pieces, RegistrationScan& scan) {
        direct_.clear();
        kept_.clear();
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const Piece& piece = pieces[i];
            const std::uint64_t remote = remote_of(direction, piece);
            std::uint32_t segment = kPrivateMemory;
            if (local_of(direction, piece) == 0 || !scan.covers(remote, piece.size_bytes, segment)) return i;
            std::byte* here = segment != kPrivateMemory ? peer.mapped_at(segment, remote, piece.size_bytes) : nullptr;
            if (here != nullptr) {
                if (direct_.empty()) begin_direct(pieces, i);
                direct_.push_back(mapped(direction, piece, here));
            } else if (!direct_.empty()) {
                kept_.push_back(piece);
            }
        }
        through_kernel_ = direct_.empty() ? pieces : std::span<const Piece>(kept_);
        return pieces.size();
    }
    void begin_direct(std::span<const Piece> pieces, std::size_t before) {
        direct_.reserve(pieces.size() - before);
        kept_.assign(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(before));
    }

    std::vector<Piece> direct_;
    std::vector<Piece> kept_;
    std::span<const Piece> through_kernel_;
};

}  // namespace memfabric
