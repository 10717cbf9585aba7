// SPDX-License-Identifier: Apache-2.0
//
// Transfers over the network: by TCP, where the peer looks at its registrations itself before every system call of its
// own, or by UCX, where it has told which of its memory is served, and ends that when it is not.
#include <algorithm>
#include <cinttypes>
#include <memory>
#include <string>
#include <utility>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "memory/move_pins.h"
#include "sync/rcu.h"
#include "transfer/engine.h"
#include "transfer/local_buffers.h"
#include "transfer/outcome.h"
#include "transfer/question.h"
#include "transports/routed_batch.h"

namespace memfabric {
namespace {

constexpr int kMostRoutings = 3;  // of one move; a peer may unregister memory again and again

std::size_t piece_at(const Move& move, std::uint64_t address) {
    const auto found = std::ranges::find_if(
        move.pieces, [&](const Piece& piece) { return address - remote_of(move.direction, piece) < piece.size_bytes; });
    return static_cast<std::size_t>(found - move.pieces.begin());
}

// Every piece has bytes, and a side of ours that may be touched.
Status admit_own_sides(const Peer& peer, const Move& move, LocalBuffers& local) {
    for (std::size_t i = 0; i < move.pieces.size(); ++i) {
        const Piece& piece = move.pieces[i];
        if (piece.size_bytes == 0 || local_of(move.direction, piece) == 0) [[unlikely]]
            return explain_range(peer, move, i);
        const Status status = local.admit(local_extent(move.direction, piece));
        if (status != Status::Ok) [[unlikely]]
            return about_one(status, i, move.pieces);
    }
    return Status::Ok;
}

}  // namespace

Status TransferEngine::ask_peer(Peer& peer, const Question& question, Answer& answer) {
    std::shared_ptr<SessionService> service;
    {
        const std::lock_guard lock(mutex_);
        service = service_;
    }
    if (service == nullptr) {
        return fail(Status::NotInit, "the transfer engine is not initialised: call initialize() first");
    }
    return ask({*service, open_, deadline()}, peer, question, answer);
}

// Leaves the guard. A move by UCX that failed because memory of the peer, perhaps other memory, was unregistered begins
// again: the same bytes go to the same places.
Status TransferEngine::move_remote(rcu::ReadGuard& guard, Peer& peer, const Move& move) {
    MovePins pins;
    LocalBuffers local(&pins);
    if (const Status status = admit_own_sides(peer, move, local); status != Status::Ok) return status;
    guard.traffic().add(peer.route(), operation_of(move.direction), move.total_bytes);
    guard.leave();
    const auto may_go_on = [&] {
        if (const Status status = local.recheck_pinned(); status != Status::Ok) return status;
        return peer.usable() ? Status::Ok : fail(Status::NotConnected, "the connection to its host has ended");
    };
    Outcome outcome;
    bool touched = false;  // by an earlier attempt
    for (int routing = 0; routing < kMostRoutings; ++routing) {
        RoutedBatch batch;
        ucx::RemoteRanges::Kept kept;
        if (const Status status = route_remote(peer, move, batch, kept); status != Status::Ok) {
            if (!touched || status == Status::Interrupted) return status;
            return fail(Status::PartialFailed, "%s; a part may have been moved before", take_last_error().c_str());
        }
        outcome = batch.run(may_go_on, timeout_);
        outcome.may_have_touched_more |= touched;
        if (peer.ucx == nullptr || outcome.status != Status::NotConnected || !peer.usable()) break;
        PausePoint::reach("transfer.ucx.lost");
        touched |= outcome.moved_bytes != 0 || outcome.may_have_touched_more;
        peer.ucx->forget(kept);
    }
    if (const Status status = local.recheck_pinned(); outcome.status == Status::Ok && status != Status::Ok) {
        outcome += {status, 0, take_last_error()};
    }
    if (outcome.status == Status::Ok) return Status::Ok;
    const Status status = explain_failure(peer, move.direction, outcome, move.total_bytes);
    return outcome.refused.size_bytes == 0 ? status : about_refused(status, outcome.refused, move);
}

Status TransferEngine::route_remote(Peer& peer, const Move& move, RoutedBatch& batch, ucx::RemoteRanges::Kept& kept) {
    if (peer.ucx == nullptr) {
        for (const Piece& piece : move.pieces) batch.add(*peer.transport, move.direction, piece, move.pieces.size());
        return Status::Ok;
    }
    for (std::uint64_t unknown = 0; !peer.ucx->route(move, batch, kept, unknown);) {
        if (const Status status = learn_region(peer, move, unknown); status != Status::Ok) return status;
        batch.clear();
    }
    return Status::Ok;
}

Status TransferEngine::learn_region(Peer& peer, const Move& move, std::uint64_t address) {
    Answer answer;
    const Question question{.encode = [&](std::uint64_t number) { return encode(AskRegion{number, address}); },
                            .pause_point = "transfer.ask_region.sent",
                            .if_unsent = "nothing was transferred",
                            .if_silent = "nothing was transferred"};
    if (const Status status = ask_peer(peer, question, answer); status != Status::Ok) return status;
    ServedRegion& region = answer.region;
    if (region.verdict == RegionVerdict::Unknown) return explain_range(peer, move, piece_at(move, address));
    if (region.verdict == RegionVerdict::Failed) {
        return fail(Status::NoResources,
                    "session %s: memory at 0x%" PRIx64
                    " is registered there, but UCX does not serve it: %s; allow HOST_TCP instead of HOST_RDMA",
                    peer.session.c_str(), address, region.reason.c_str());
    }
    ucx::RemoteRegion learnt{region.base, region.size_bytes, std::move(region.key)};
    if (!learnt.contains(address)) {
        return fail(Status::NotConnected, "session %s gave no answer that this version understands",
                    peer.session.c_str());
    }
    const Status status = peer.ucx->learn(region.worker_address, std::move(learnt));
    if (status == Status::Ok) return status;
    return fail(status, "session %s: %s", peer.session.c_str(), take_last_error().c_str());
}

}  // namespace memfabric
