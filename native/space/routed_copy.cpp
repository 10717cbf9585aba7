// SPDX-License-Identifier: Apache-2.0
#include "space/routed_copy.h"

#include <algorithm>

#include "transports/mapped.h"

namespace memfabric {
namespace {

constexpr std::size_t kStageBytes = std::size_t{4} << 20;

}  // namespace

void RoutedCopy::add(const Piece& piece, const Side& source, const Side& target) {
    total_bytes_ += piece.size_bytes;
    if (source.transport != nullptr && target.transport != nullptr) {
        staged_.push_back({piece, source.transport, target.transport});
    } else if (source.transport != nullptr) {
        batch_.add(*source.transport, Direction::Read, piece);
    } else if (target.transport != nullptr) {
        batch_.add(*target.transport, Direction::Write, piece);
    } else {
        batch_.add(MappedTransport::process(), Direction::Write, piece);
    }
}

void RoutedCopy::add(const Rectangle& rectangle, const Side& source, const Side& target) {
    for (std::size_t row = 0; row < rectangle.height; ++row) {
        add(Piece{rectangle.target + row * rectangle.target_pitch_bytes,
                  rectangle.source + row * rectangle.source_pitch_bytes, rectangle.width_bytes},
            source, target);
    }
}

Route RoutedCopy::route() const {
    if (!staged_.empty()) return staged_.front().to->traits().route;
    for (const RoutedBatch::Leg& leg : batch_.legs()) {
        if (leg.transport->traits().route != Route::Mapped) return leg.transport->traits().route;
    }
    return Route::Mapped;
}

Outcome RoutedCopy::run(const RoutedBatch::MayGoOn& may_go_on, std::chrono::nanoseconds stall_limit) const {
    Outcome sum = batch_.run(may_go_on, stall_limit);
    std::vector<std::byte> stage;
    for (const Staged& staged : staged_) {
        if (sum.status != Status::Ok) break;
        sum += run_staged(staged, stage, may_go_on, stall_limit);
    }
    return sum;
}

// What a piece still needs when it moves upwards onto itself is read before it is overwritten, as memmove would.
Outcome RoutedCopy::run_staged(const Staged& staged, std::vector<std::byte>& stage,
                               const RoutedBatch::MayGoOn& may_go_on, std::chrono::nanoseconds stall_limit) const {
    const Piece& piece = staged.piece;
    stage.resize(std::max(stage.size(), std::min(piece.size_bytes, kStageBytes)));
    const bool from_end = piece.target > piece.source && piece.target < piece.source + piece.size_bytes;
    Outcome sum;
    for (std::size_t left = piece.size_bytes; left > 0 && sum.status == Status::Ok;) {
        const std::size_t size_bytes = std::min(kStageBytes, left);
        const std::size_t offset = from_end ? left - size_bytes : piece.size_bytes - left;
        RoutedBatch read;
        read.add(*staged.from, Direction::Read, {stage.data(), piece.source + offset, size_bytes});
        if (Outcome half = read.run(may_go_on, stall_limit); half.status != Status::Ok) {
            half.moved_bytes = 0;  // not in the target
            sum += half;
            break;
        }
        RoutedBatch write;
        write.add(*staged.to, Direction::Write, {piece.target + offset, stage.data(), size_bytes});
        sum += write.run(may_go_on, stall_limit);
        left -= size_bytes;
    }
    return sum;
}

}  // namespace memfabric
