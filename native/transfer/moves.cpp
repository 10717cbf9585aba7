// SPDX-License-Identifier: Apache-2.0
//
// The transfers: find the peer, check its registrations and our buffer, move, check that both were there all the time.
//
// Budget of one small transfer beside the copy or system call itself: one guard, one access epoch, one hash look-up,
// one binary search of the peer's registrations and one of our objects, three loads of the peer's life, one count. No
// lock, no allocation.
#include <algorithm>
#include <cinttypes>
#include <memory>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/last_error.h"
#include "base/pause_point.h"
#include "copy/engine.h"
#include "memory/move_pins.h"
#include "sync/rcu.h"
#include "transfer/access_epochs.h"
#include "transfer/engine.h"
#include "transfer/local_buffers.h"
#include "transfer/outcome.h"
#include "transfer/registrations/registration_page.h"
#include "transports/mapped.h"
#include "transports/routed_batch.h"

namespace memfabric {
namespace {

constexpr std::uint64_t kAllAddresses = std::uint64_t{1} << 56;
// What a transfer moves inside a guard, or between two looks at the peer's registrations: some 10 to 50 ms, and enough
// for all threads to work far from each other.
constexpr std::size_t kPartBytes = std::size_t{128} << 20;

using Segments = std::vector<std::shared_ptr<const void>>;  // of the peer that stay mapped after the guard

// Where the piece goes: by its own way where it is mapped, else through the peer's transport. False: it is not all
// registered there.
bool route(Peer& peer, Direction direction, const Piece& piece, RegistrationScan& scan, Segments* held, Piece& here,
           bool& is_mapped) {
    std::uint32_t segment = kPrivateMemory;
    const std::uint64_t remote = remote_of(direction, piece);
    if (local_of(direction, piece) == 0 || !scan.covers(remote, piece.size_bytes, segment)) return false;
    std::byte* place = segment == kPrivateMemory ? nullptr : peer.mapped_at(segment, remote, piece.size_bytes);
    is_mapped = place != nullptr;
    if (is_mapped) here = with_remote_at(direction, piece, place);
    if (is_mapped && held != nullptr) held->push_back(peer.segments.hold(segment));
    return true;
}

// Our own side was taken away while all of it was moved: of a write the peer has what nobody can vouch for, of a read
// nobody has it.
[[gnu::cold]] Status after_loss(const Peer& peer, Direction direction, Status status, std::size_t total_bytes) {
    if (direction == Direction::Read) return status;
    return explain_failure(peer, direction, {status, total_bytes, take_last_error()}, total_bytes);
}

// The hot path: one piece, inside a guard.
Status move_one(const rcu::ReadGuard& guard, Peer& peer, Direction direction, const Piece& piece) {
    LocalBuffers local;
    const Extent buffer = local_extent(direction, piece);
    if (const Status status = local.admit(buffer); status != Status::Ok) [[unlikely]]
        return status;
    Piece here;
    bool is_mapped = false;
    for (;;) {
        RegistrationScan scan(peer.words());
        const bool covered = route(peer, direction, piece, scan, nullptr, here, is_mapped);
        if (!scan.current()) [[unlikely]]
            continue;
        if (!covered) [[unlikely]]
            return explain_range(peer, direction, piece);
        break;
    }
    Status status = Status::Ok;
    if (is_mapped) {
        guard.traffic().add(Route::Mapped, operation_of(direction), piece.size_bytes);
        CopyEngine::process().copy(here.target, here.source, here.size_bytes);
        if (!peer.usable()) [[unlikely]]
            status = explain_failure(peer, direction, {Status::Ok, piece.size_bytes, {}}, piece.size_bytes);
    } else {
        guard.traffic().add(peer.transport->traits().route, operation_of(direction), piece.size_bytes);
        Completion completion;
        peer.transport->start({direction, {&piece, 1}, piece.size_bytes}, completion);
        status = conclude(peer, direction, completion.outcome(), piece.size_bytes);
    }
    if (status != Status::Ok) return status;
    status = local.recheck(buffer);
    return status == Status::Ok ? status : after_loss(peer, direction, status, piece.size_bytes);
}

// The index of the first piece that may not be transferred, or their number. Inside a guard.
std::size_t route_all(Peer& peer, Direction direction, std::span<const Piece> pieces, RoutedBatch& batch,
                      Segments* held) {
    for (;;) {
        RegistrationScan scan(peer.words());
        batch.clear();
        std::size_t routed = 0;
        for (; routed < pieces.size(); ++routed) {
            const Piece& piece = pieces[routed];
            Piece here;
            bool is_mapped = false;
            if (!route(peer, direction, piece, scan, held, here, is_mapped)) break;
            const std::size_t to_come = pieces.size() - routed - 1;
            is_mapped ? batch.add(MappedTransport::process(), direction, here, to_come)
                      : batch.add(*peer.transport, direction, piece, to_come);
        }
        if (scan.current()) return routed;
    }
}

void count(const rcu::ReadGuard& guard, const RoutedBatch& batch) {
    for (const RoutedBatch::Leg& leg : batch.legs()) {
        guard.traffic().add(leg.transport->traits().route, operation_of(leg.direction), leg.total_bytes);
    }
}

Status admit_all(LocalBuffers& local, Direction direction, std::span<const Piece> pieces) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (const Status status = local.admit(local_extent(direction, pieces[i])); status != Status::Ok) [[unlikely]]
            return about_one(status, i, pieces);
    }
    return Status::Ok;
}

// A batch, inside a guard.
Status move_many(const rcu::ReadGuard& guard, Peer& peer, const Move& move) {
    LocalBuffers local;
    if (const Status status = admit_all(local, move.direction, move.pieces); status != Status::Ok) [[unlikely]]
        return status;
    RoutedBatch batch;
    const std::size_t routed = route_all(peer, move.direction, move.pieces, batch, nullptr);
    if (routed != move.pieces.size()) return explain_range(peer, move, routed);
    count(guard, batch);
    if (const Status status = conclude(peer, move.direction, batch.run(), move.total_bytes); status != Status::Ok)
        return status;
    if (local.untouched()) [[likely]]
        return Status::Ok;
    for (const Piece& piece : move.pieces) {
        if (const Status status = local.recheck(local_extent(move.direction, piece)); status != Status::Ok) [[unlikely]]
            return after_loss(peer, move.direction, status, move.total_bytes);
    }
    return Status::Ok;
}

// Leaves the guard, with its own side pinned: whoever takes other memory away, of whatever object, does not wait for
// it. The peer's registrations are looked at again for every part.
Status move_long(rcu::ReadGuard& guard, Peer& peer, const Move& move, std::chrono::nanoseconds stall_limit) {
    MovePins pins;
    LocalBuffers local(&pins);
    if (const Status status = admit_all(local, move.direction, move.pieces); status != Status::Ok) return status;
    RoutedBatch all;  // checked before the first byte moves
    const std::size_t routed = route_all(peer, move.direction, move.pieces, all, nullptr);
    if (routed != move.pieces.size()) return explain_range(peer, move, routed);
    count(guard, all);
    guard.leave();

    const auto may_go_on = [&] { return Cancellation::requested() ? Status::Interrupted : local.recheck_pinned(); };
    Outcome sum;
    const auto move_part = [&](const Move& part) {
        RoutedBatch batch;
        Segments held;
        {
            const rcu::ReadGuard look;
            const std::size_t still = route_all(peer, part.direction, part.pieces, batch, &held);
            if (still != part.pieces.size()) {
                const Status status = explain_range(peer, part.direction, part.pieces[still]);
                sum += {status, 0, take_last_error()};
                return status;
            }
        }
        sum += batch.run(may_go_on, stall_limit);
        if (sum.status != Status::Ok || !peer.usable()) return Status::Error;
        PausePoint::reach("transfer.between_chunks");
        if (const Status status = may_go_on(); status != Status::Ok) sum += {status, 0, take_last_error()};
        return sum.status;
    };
    static_cast<void>(for_each_part(move, kPartBytes, /*addresses_are_ours=*/false, move_part));
    return conclude(peer, move.direction, sum, move.total_bytes);
}

}  // namespace

std::optional<Status> TransferEngine::transfer_if_attached(Direction direction, std::string_view session,
                                                           std::uint64_t buffer, std::uint64_t peer_buffer,
                                                           std::uint64_t size_bytes) {
    const Piece piece = piece_of(direction, buffer, peer_buffer, size_bytes);
    return move_if_attached(direction, session, {&piece, 1}, size_bytes, /*may_wait=*/false);
}

// Moves that leave the guard keep the peer; `kept` ends after the guard.
[[gnu::always_inline]] inline Status TransferEngine::move_inside(rcu::ReadGuard& guard, Peer& peer,
                                                                 std::shared_ptr<Peer>& kept, const Move& move) {
    if (peer.is_remote) {
        kept = peer.shared_from_this();
        return move_remote(guard, *kept, move);
    }
    const AccessEpochs::Epoch epoch(peer.target_id);
    if (!epoch.admitted()) [[unlikely]]
        return Status::NoResources;  // the epoch has left its sentence
    if (move.total_bytes > kPartBytes || !peer.is_synchronous) [[unlikely]] {
        kept = peer.shared_from_this();
        return move_long(guard, *kept, move, timeout_);
    }
    return move.pieces.size() == 1 ? move_one(guard, peer, move.direction, move.pieces[0])
                                   : move_many(guard, peer, move);
}

std::optional<Status> TransferEngine::move_if_attached(Direction direction, std::string_view session,
                                                       std::span<const Piece> pieces, std::uint64_t total_bytes,
                                                       bool may_wait) {
    if (fork_guard_.in_forked_child()) [[unlikely]]
        return std::nullopt;
    std::shared_ptr<Peer> kept;  // ends after the guard
    rcu::ReadGuard guard;
    Peer* peer = peers_.find(session);
    if (peer == nullptr || !peer->usable()) [[unlikely]]
        return std::nullopt;
    if (!may_wait && !peer->is_synchronous) return std::nullopt;
    return move_inside(guard, *peer, kept, {direction, pieces, total_bytes});
}

// A peer that the caller keeps.
Status TransferEngine::move_to(Peer& peer, const Move& move) {
    std::shared_ptr<Peer> kept;
    rcu::ReadGuard guard;
    return move_inside(guard, peer, kept, move);
}

Status TransferEngine::move(Direction direction, std::string_view session, std::span<const Piece> pieces,
                            std::uint64_t total_bytes) {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
        if (const auto status = move_if_attached(direction, session, pieces, total_bytes, true)) return *status;
        if (const Status status = check_process(); status != Status::Ok) return status;
        if (const Status status = attach(std::string(session)); status != Status::Ok) return status;
    }
    return ends_again_and_again(session);
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
            return fail(Status::InvalidParam,
                        "piece %zu of the batch has %" PRIu64
                        " bytes, and the lengths add up to more than there are addresses",
                        i, arrays.sizes[i]);
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

Status TransferEngine::write_batch_and_notify(std::string_view session, const TransferArrays& arrays,
                                              std::string_view data) {
    std::vector<Piece> pieces;
    std::uint64_t total_bytes = 0;
    if (const Status status = gather(Direction::Write, arrays, pieces, total_bytes); status != Status::Ok)
        return status;
    return write_and_notify(session, pieces, total_bytes, data);
}

Status TransferEngine::submit(Direction direction, std::string_view session, const TransferArrays& arrays,
                              std::uint64_t stream_handle, std::optional<std::string_view> notification) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (notification) {
        if (const Status status = check_notification(*notification); status != Status::Ok) return status;
    }
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
        [engine = shared_from_this(), direction, name = std::string(session), pieces = std::move(pieces), total_bytes,
         data = notification ? std::optional<Bytes>(*notification) : std::nullopt] {
            return Stream::run_cancellable([&] {
                return data ? engine->write_and_notify(name, pieces, total_bytes, *data)
                            : engine->move(direction, name, pieces, total_bytes);
            });
        },
        sequence);
}

Status TransferEngine::submit_own(std::string_view session, Submissions::Task task) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    std::shared_ptr<Submissions> submissions;
    {
        const std::lock_guard lock(mutex_);
        if (!open_.load()) {
            return fail(Status::NotInit, "the transfer engine is not initialised: call initialize() first");
        }
        if (submissions_ == nullptr) submissions_ = std::make_shared<Submissions>();
        submissions = submissions_;
    }
    return submissions->submit(session, std::move(task));
}

}  // namespace memfabric
