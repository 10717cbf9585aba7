// SPDX-License-Identifier: Apache-2.0
//
// The transfers: find the peer, check its registrations and our buffer, move, check that both were there all the time.
//
// Budget of one small transfer beside the copy or system call itself: one guard, one access epoch, one hash look-up,
// one binary search of the peer's registrations and one of our objects, three loads of the peer's life. No lock, no
// allocation.
#include <algorithm>
#include <cinttypes>
#include <memory>
#include <utility>
#include <vector>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "copy/engine.h"
#include "sync/rcu.h"
#include "transfer/access_epochs.h"
#include "transfer/batch_routes.h"
#include "transfer/engine.h"
#include "transfer/local_buffers.h"
#include "transfer/outcome.h"
#include "transfer/piece_sides.h"
#include "transfer/registration_page.h"

namespace memfabric {
namespace {

constexpr std::uint64_t kAllAddresses = std::uint64_t{1} << 56;
// What a transfer moves inside one guard: some 10 to 50 ms, and enough for all threads to work far from each other.
constexpr std::size_t kGuardedBytes = std::size_t{128} << 20;
constexpr int kMostAttempts = 3;  // a peer may restart between attaching and using it, but not forever

Status move_admitted(Peer& peer, Direction direction, const Piece& piece) {
    std::uint32_t segment = kPrivateMemory;
    bool covered = false;
    for (;;) {
        RegistrationScan scan(peer.words());
        covered = scan.covers(remote_of(direction, piece), piece.size_bytes, segment);
        if (scan.current()) [[likely]]
            break;
    }
    if (!covered || local_of(direction, piece) == 0) [[unlikely]]
        return explain_range(peer, direction, piece);
    if (segment != kPrivateMemory) {
        std::byte* remote = peer.mapped_at(segment, remote_of(direction, piece), piece.size_bytes);
        if (remote != nullptr) [[likely]] {
            const Piece here = mapped(direction, piece, remote);
            CopyEngine::process().copy(here.target, here.source, here.size_bytes);
            return conclude(peer, direction, {&piece, 1}, {piece.size_bytes, 0}, piece.size_bytes);
        }
    }
    const Moved moved = move_pieces(peer.process, direction, {&piece, 1}, piece.size_bytes);
    return conclude(peer, direction, {&piece, 1}, moved, piece.size_bytes);
}

Status move_one(Peer& peer, Direction direction, const Piece& piece) {
    LocalBuffers local;
    const Extent buffer = local_extent(direction, piece);
    if (const Status status = local.admit(buffer); status != Status::Ok) [[unlikely]]
        return status;
    const Status status = move_admitted(peer, direction, piece);
    return status == Status::Ok ? local.recheck(buffer) : status;
}

std::size_t sum_of(std::span<const Piece> pieces) {
    std::size_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.size_bytes;
    return sum;
}

Status move_admitted(Peer& peer, Direction direction, std::span<const Piece> pieces, std::size_t total_bytes) {
    BatchRoutes routes;
    const std::size_t refused = routes.sort(peer, direction, pieces);
    if (refused != pieces.size()) return explain_range(peer, direction, pieces[refused]);
    const std::size_t direct_bytes = sum_of(routes.direct());
    Moved moved;
    if (direct_bytes != total_bytes) {
        moved = move_pieces(peer.process, direction, routes.through_kernel(), total_bytes - direct_bytes);
    }
    if (direct_bytes != 0 && moved.error == 0) {
        CopyEngine::process().copy_batch(routes.direct());
        moved.size_bytes += direct_bytes;
    }
    return conclude(peer, direction, routes.through_kernel(), moved, total_bytes);
}

Status move_many(Peer& peer, Direction direction, std::span<const Piece> pieces, std::size_t total_bytes) {
    LocalBuffers local;
    for (const Piece& piece : pieces) {
        if (const Status status = local.admit(local_extent(direction, piece)); status != Status::Ok) [[unlikely]]
            return status;
    }
    if (const Status status = move_admitted(peer, direction, pieces, total_bytes); status != Status::Ok) return status;
    if (local.untouched()) [[likely]]
        return Status::Ok;
    for (const Piece& piece : pieces) {
        if (const Status status = local.recheck(local_extent(direction, piece)); status != Status::Ok) [[unlikely]]
            return status;
    }
    return Status::Ok;
}

// All of it, before the first byte moves.
Status check_all(Peer& peer, Direction direction, std::span<const Piece> pieces) {
    LocalBuffers local;
    for (const Piece& piece : pieces) {
        if (const Status status = local.admit(local_extent(direction, piece)); status != Status::Ok) return status;
    }
    BatchRoutes routes;
    const std::size_t refused = routes.sort(peer, direction, pieces);
    return refused == pieces.size() ? Status::Ok : explain_range(peer, direction, pieces[refused]);
}

Status partly(Status status, std::size_t moved_bytes, std::size_t total_bytes) {
    if (moved_bytes == 0) return status;
    return fail(Status::PartialFailed, "%s; before that %zu of %zu bytes were moved", take_last_error().c_str(),
                moved_bytes, total_bytes);
}

// Leaves the guard between chunks: whoever takes memory away, of whatever object, waits for one chunk at most.
Status move_in_chunks(rcu::ReadGuard& guard, Peer& peer, Direction direction, std::span<const Piece> pieces,
                      std::size_t total_bytes) {
    if (const Status status = check_all(peer, direction, pieces); status != Status::Ok) return status;
    BufferOwners owners;
    for (const Piece& piece : pieces) owners.add(local_extent(direction, piece));
    std::vector<Piece> chunk;
    std::size_t chunk_bytes = 0;
    std::size_t moved_bytes = 0;
    for (const Piece& piece : pieces) {
        for (std::size_t offset = 0; offset < piece.size_bytes;) {
            const std::size_t part_bytes = std::min(piece.size_bytes - offset, kGuardedBytes - chunk_bytes);
            chunk.push_back({piece.target + offset, piece.source + offset, part_bytes});
            chunk_bytes += part_bytes;
            offset += part_bytes;
            if (chunk_bytes < kGuardedBytes && moved_bytes + chunk_bytes < total_bytes) continue;
            Status status = owners.check();
            if (status == Status::Ok) status = move_many(peer, direction, chunk, chunk_bytes);
            if (status != Status::Ok) return partly(status, moved_bytes, total_bytes);
            moved_bytes += std::exchange(chunk_bytes, 0);
            chunk.clear();
            PausePoint::reach("transfer.between_chunks");
            guard.renew();
        }
    }
    return Status::Ok;
}

}  // namespace

std::optional<Status> TransferEngine::transfer_if_attached(Direction direction, std::string_view session,
                                                           std::uint64_t buffer, std::uint64_t peer_buffer,
                                                           std::uint64_t size_bytes) {
    const Piece piece = piece_of(direction, buffer, peer_buffer, size_bytes);
    return move_if_attached(direction, session, {&piece, 1}, size_bytes);
}

std::optional<Status> TransferEngine::move_if_attached(Direction direction, std::string_view session,
                                                       std::span<const Piece> pieces, std::uint64_t total_bytes) {
    if (fork_guard_.in_forked_child()) [[unlikely]]
        return std::nullopt;
    std::shared_ptr<Peer> kept;  // ends after the guard
    rcu::ReadGuard guard;
    Peer* peer = peers_.find(session);
    if (peer == nullptr || !peer->usable()) [[unlikely]]
        return std::nullopt;
    const AccessEpochs::Epoch epoch(peer->target_id);
    if (!epoch.admitted()) [[unlikely]]
        return Status::NoResources;  // the epoch has left its sentence
    if (total_bytes > kGuardedBytes) [[unlikely]] {
        kept = peer->shared_from_this();
        return move_in_chunks(guard, *kept, direction, pieces, total_bytes);
    }
    return pieces.size() == 1 ? move_one(*peer, direction, pieces[0])
                              : move_many(*peer, direction, pieces, total_bytes);
}

Status TransferEngine::move(Direction direction, std::string_view session, std::span<const Piece> pieces,
                            std::uint64_t total_bytes) {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
        if (const auto status = move_if_attached(direction, session, pieces, total_bytes)) return *status;
        if (const Status status = check_process(); status != Status::Ok) return status;
        if (const Status status = attach(std::string(session)); status != Status::Ok) return status;
    }
    return fail(Status::NotConnected, "session %.*s ended again and again while we attached to it",
                static_cast<int>(session.size()), session.data());
}

Status TransferEngine::transfer(Direction direction, std::string_view session, std::uint64_t buffer,
                                std::uint64_t peer_buffer, std::uint64_t size_bytes) {
    const Piece piece = piece_of(direction, buffer, peer_buffer, size_bytes);
    return move(direction, session, {&piece, 1}, size_bytes);
}

Status TransferEngine::gather(Direction direction, const TransferArrays& arrays, std::vector<Piece>& pieces,
                              std::uint64_t& total_bytes) const {
    const std::size_t count = arrays.buffers.size();
    if (arrays.peer_buffers.size() != count || arrays.sizes.size() != count) {
        return fail(Status::InvalidParam,
                    "the batch has %zu buffers, %zu peer buffers and %zu lengths: as many of each", count,
                    arrays.peer_buffers.size(), arrays.sizes.size());
    }
    if (count == 0 || count > kMaxBatchPieces) {
        return fail(Status::InvalidParam, "the batch has %zu pieces, it must have 1 to %zu", count, kMaxBatchPieces);
    }
    pieces.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        pieces[i] = piece_of(direction, arrays.buffers[i], arrays.peer_buffers[i], arrays.sizes[i]);
        if (arrays.sizes[i] > kAllAddresses || (total_bytes += arrays.sizes[i]) > kAllAddresses) {
            return fail(Status::InvalidParam, "the lengths of the batch add up to more than there are addresses");
        }
    }
    return Status::Ok;
}

Status TransferEngine::transfer_batch(Direction direction, std::string_view session, const TransferArrays& arrays) {
    std::vector<Piece> pieces;
    std::uint64_t total_bytes = 0;
    if (const Status status = gather(direction, arrays, pieces, total_bytes); status != Status::Ok) return status;
    return move(direction, session, pieces, total_bytes);
}

Status TransferEngine::submit(Direction direction, std::string_view session, const TransferArrays& arrays,
                              std::uint64_t stream_handle) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    const std::shared_ptr<Stream> stream = Stream::find(stream_handle);
    if (stream == nullptr) {
        return fail(Status::InvalidParam, "%" PRIu64 " is not the handle of an open stream; make one with mf.Stream()",
                    stream_handle);
    }
    if (!is_open()) return fail(Status::NotInit, "the transfer engine is not initialised: call initialize() first");
    std::vector<Piece> pieces;
    std::uint64_t total_bytes = 0;
    if (const Status status = gather(direction, arrays, pieces, total_bytes); status != Status::Ok) return status;
    std::uint64_t sequence = 0;
    return stream->submit(
        [engine = shared_from_this(), direction, name = std::string(session), pieces = std::move(pieces), total_bytes] {
            return engine->move(direction, name, pieces, total_bytes);
        },
        sequence);
}

Status TransferEngine::submit_own(Stream::Task task, std::shared_ptr<Stream>& stream, std::uint64_t& sequence) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    {
        const std::lock_guard lock(mutex_);
        if (!open_.load()) {
            return fail(Status::NotInit, "the transfer engine is not initialised: call initialize() first");
        }
        if (stream_ == nullptr) stream_ = Stream::make();
        stream = stream_;
    }
    return stream->submit(std::move(task), sequence);
}

}  // namespace memfabric
