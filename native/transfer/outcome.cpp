// SPDX-License-Identifier: Apache-2.0
#include "transfer/outcome.h"

#include <algorithm>
#include <cinttypes>
#include <string>

#include "base/last_error.h"
#include "copy/piece_failure.h"

namespace memfabric {

Status explain_range(const Peer& peer, Direction direction, const Piece& piece) {
    if (piece.size_bytes == 0) {
        return fail(Status::InvalidParam, "session %s: a length is 0, expected at least 1 byte", peer.session.c_str());
    }
    if (local_of(direction, piece) == 0) {
        return fail(Status::InvalidParam, "session %s: a buffer address of this process is 0", peer.session.c_str());
    }
    return fail(Status::InvalidParam,
                "session %s: %zu bytes at 0x%" PRIx64
                " are not all inside memory that is registered there now; nothing was transferred",
                peer.session.c_str(), piece.size_bytes, remote_of(direction, piece));
}

Status about_one(Status status, std::size_t index, std::span<const Piece> pieces) {
    return pieces.size() == 1 ? status : about_piece(status, index, pieces.size(), pieces[index]);
}

Status explain_range(const Peer& peer, const Move& move, std::size_t index) {
    return about_one(explain_range(peer, move.direction, move.pieces[index]), index, move.pieces);
}

Status about_refused(Status status, const RemoteExtent& refused, const Move& move) {
    const auto reaches_into = [&](const Piece& piece) {
        const std::uint64_t start = remote_of(move.direction, piece);
        return start < refused.address + refused.size_bytes && refused.address < start + piece.size_bytes;
    };
    const auto first = std::ranges::find_if(move.pieces, reaches_into);
    if (first == move.pieces.end()) return status;
    const auto end = std::find_if_not(first, move.pieces.end(), reaches_into);
    const auto index = static_cast<std::size_t>(first - move.pieces.begin());
    if (end - first == 1) return about_one(status, index, move.pieces);
    const std::string reason = take_last_error();
    return fail(status, "pieces %zu to %zu of %zu (counted from 0): %s", index,
                static_cast<std::size_t>(end - move.pieces.begin()) - 1, move.pieces.size(), reason.c_str());
}

namespace {

Status explain_remote_failure(const Peer& peer, const Outcome& outcome, std::size_t total_bytes, bool partly) {
    const char* session = peer.session.c_str();
    if (!partly) return fail(outcome.status, "session %s: %s", session, outcome.reason.c_str());
    return fail(Status::PartialFailed, "session %s: %s; %zu of %zu bytes were moved%s", session, outcome.reason.c_str(),
                outcome.moved_bytes, total_bytes, outcome.may_have_touched_more ? ", perhaps more" : "");
}

}  // namespace

Status explain_failure(const Peer& peer, Direction direction, const Outcome& outcome, std::size_t total_bytes) {
    const char* session = peer.session.c_str();
    const std::string process = peer.process_name();
    // What was written completely into a process that has ended is gone with it.
    const bool is_gone = direction == Direction::Write && outcome.moved_bytes == total_bytes && !peer.usable();
    const bool partly = outcome.may_have_touched_more || (outcome.moved_bytes != 0 && !is_gone);
    if (outcome.status == Status::Interrupted) return outcome.status;
    if (peer.is_remote) return explain_remote_failure(peer, outcome, total_bytes, partly);
    if (!peer.usable() && !partly) {
        return fail(Status::NotConnected, "session %s: %s has ended", session, process.c_str());
    }
    if (!peer.usable()) {
        return fail(Status::PartialFailed, "session %s: %s ended during the transfer; %zu of %zu bytes were moved",
                    session, process.c_str(), outcome.moved_bytes, total_bytes);
    }
    if (outcome.status == Status::NotConnected && peer.segments.missed() != 0) {
        return fail(
            Status::NoResources,
            "session %s: this process had no descriptor left when memory of %s was shown to it, and there is no "
            "other way in: %s; raise the limit of open files (ulimit -n) and restart the engine",
            session, process.c_str(), outcome.reason.c_str());
    }
    if (!partly) return fail(outcome.status, "session %s: %s", session, outcome.reason.c_str());
    return fail(Status::PartialFailed, "session %s: %s; %zu of %zu bytes were moved", session, outcome.reason.c_str(),
                outcome.moved_bytes, total_bytes);
}

}  // namespace memfabric
