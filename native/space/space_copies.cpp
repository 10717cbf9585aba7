// SPDX-License-Identifier: Apache-2.0
//
// The copies of a space: resolve, move, check again.
#include <algorithm>
#include <cinttypes>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <variant>

#include "base/cancellation.h"
#include "base/last_error.h"
#include "base/pause_point.h"
#include "copy/revocable.h"
#include "memory/move_pins.h"
#include "space/routed_copy.h"
#include "space/space.h"
#include "sync/rcu.h"

namespace memfabric {

// Budget of one copy that is neither queued nor long nor remote: one guard, two look-ups (a subtraction and a division
// each, or one binary search of the process's regions), the bytes, one comparison of the revocation clock, one count.
// No lock, no system call, no allocation.
template <typename Request>
std::optional<Status> Space::run_near(const Request& request, std::uint32_t type) {
    rcu::ReadGuard guard;
    Resolution found;
    if (const Status status = resolver_.resolve(request, type, found); status != Status::Ok) [[unlikely]]
        return late_ranks(request, status).empty() ? std::optional(status) : std::nullopt;
    if (found.is_remote) [[unlikely]]
        return std::nullopt;
    if (found.total_bytes > kChunkBytes) [[unlikely]]
        return run_long(guard, request, type, found);
    move(engine_, request);
    guard.traffic().add(Route::Mapped, Operation::Copy, found.total_bytes);
    return resolver_.recheck(request, found);
}

template <typename Request>
Status Space::run(const Request& request, std::uint32_t type) {
    if (const auto status = run_near(request, type)) [[likely]]
        return *status;
    std::vector<std::uint32_t> late;
    const Status status = run_far(request, type, late);
    if (late.empty()) return status;
    return after_news(late, status, [&] {
        std::vector<std::uint32_t> still_late;
        return run_far(request, type, still_late);
    });
}

// Tries again once the control plane has told all it knows; the first failure stands if it cannot.
template <typename TryAgain>
Status Space::after_news(const std::vector<std::uint32_t>& late_ranks, Status failure, TryAgain try_again) {
    std::string sentence = take_last_error();
    const Status news = catch_up(late_ranks);
    if (news == Status::Ok) return try_again();
    if (news == Status::Interrupted) return news;
    set_last_error(std::move(sentence));
    return failure;
}

// `late_ranks`: it failed, nothing has happened, and the control plane may know better by now of these.
template <typename Request>
Status Space::run_far(const Request& request, std::uint32_t type, std::vector<std::uint32_t>& late_ranks) {
    rcu::ReadGuard guard;
    Resolution found;
    if (const Status status = resolver_.resolve(request, type, found); status != Status::Ok) {
        late_ranks = this->late_ranks(request, status);
        return status;
    }
    const Status status = run_long(guard, request, type, found);
    if (status == Status::NotConnected) late_ranks = this->late_ranks(request, status);
    return status;
}

template <typename Request>
[[gnu::cold]] std::vector<std::uint32_t> Space::late_ranks(const Request& request, Status failure) const {
    std::vector<std::uint32_t> late;
    if (failure != Status::NotConnected && failure != Status::InvalidParam) return late;
    const bool also_gone = asks_for_gone_.load(std::memory_order_relaxed);
    const auto look_at = [&](std::uintptr_t address) {
        const auto rank = slots_.late_rank(address, also_gone);
        if (rank && std::ranges::find(late, *rank) == late.end()) late.push_back(*rank);
    };
    const auto look_at_sides = [&](const auto& what) {
        look_at(source_of(what).address);
        look_at(target_of(what).address);
    };
    if constexpr (std::is_same_v<Request, std::vector<Piece>>) {
        std::ranges::for_each(request, look_at_sides);
    } else {
        look_at_sides(request);
    }
    return late;
}

// Leaves the guard: nobody who takes other memory away waits for this copy, and who takes its own away waits for a
// chunk at most.
template <typename Request>
Status Space::run_long(rcu::ReadGuard& guard, const Request& request, std::uint32_t type, const Resolution& found) {
    MovePins pins;
    RoutedCopy routed;
    const Status resolved =
        resolver_.resolve(request, type, [&](const auto& what, const Side& source, const Side& target) {
            pins.add(source);
            pins.add(target);
            if (found.is_remote) routed.add(what, source, target);
        });
    if (resolved != Status::Ok) return resolved;
    guard.leave();
    const auto may_go_on = [&] {
        PausePoint::reach("space.copy.between_chunks");
        if (Cancellation::requested()) return Status::Interrupted;
        if (RevocationClock::now() == found.since) [[likely]]
            return Status::Ok;
        if (const Status status = object_state_.recheck(found.since); status != Status::Ok) return status;
        return pins.recheck(found.since);
    };
    if (!found.is_remote) {
        guard.traffic().add(Route::Mapped, Operation::Copy, found.total_bytes);
        const Status status = move_chunked(engine_, request, may_go_on);
        if (status != Status::NotConnected) return status;
        const rcu::ReadGuard again;  // says the same, and whether a target is left undefined
        const Status with_sides = resolver_.recheck(request, found);
        return with_sides == Status::Ok ? status : with_sides;
    }
    guard.traffic().add(routed.route(), Operation::Copy, found.total_bytes);
    const Outcome outcome = routed.run(may_go_on, stall_limit_);
    const Status now = may_go_on();
    return outcome.status == Status::Ok && now == Status::Ok ? now
                                                             : explain_failure(outcome, routed.total_bytes(), now);
}

// `now`: what is known of the ranks after the failure, with its sentence. Somebody's end is the reason, and not how the
// connection took it.
Status Space::explain_failure(const Outcome& outcome, std::size_t total_bytes, Status now) const {
    if (outcome.status == Status::Interrupted || now == Status::Interrupted) return Status::Interrupted;
    const std::string& reason = now == Status::Ok ? object_name_ + ": " + outcome.reason : take_last_error();
    if (outcome.moved_bytes != 0 || outcome.may_have_touched_more) {
        return fail(Status::PartialFailed, "%s; %zu of %zu bytes were moved%s", reason.c_str(), outcome.moved_bytes,
                    total_bytes, outcome.may_have_touched_more ? ", perhaps more" : "");
    }
    if (now != Status::Ok) return fail(now, "%s", reason.c_str());
    // What the store showed was asked for, so a refusal is about the rank and not about the range.
    const Status status = outcome.status == Status::InvalidParam ? Status::NotConnected : outcome.status;
    return fail(status, "%s", reason.c_str());
}

std::optional<Status> Space::copy_if_near(const Piece& piece, std::uint32_t type) { return run_near(piece, type); }
std::optional<Status> Space::copy_if_near(const Rectangle& rectangle, std::uint32_t type) {
    return run_near(rectangle, type);
}

Status Space::copy(std::uintptr_t source, std::uintptr_t target, std::size_t size_bytes, std::uint32_t type,
                   std::uint64_t flags, std::uint64_t stream) {
    const Piece piece{reinterpret_cast<std::byte*>(target), reinterpret_cast<const std::byte*>(source), size_bytes};
    if (is_queued(flags)) [[unlikely]]
        return queue(piece, type, flags, stream);
    return run(piece, type);
}

Status Space::copy_batch(const BatchArrays& batch, std::size_t count, std::uint32_t type, std::uint64_t flags,
                         std::uint64_t stream) try {
    if (count == 0 || count > kMaxBatchPieces) {
        return fail(Status::InvalidParam, "%s: the count of the pieces is %zu, it must be 1 to %zu",
                    object_name_.c_str(), count, kMaxBatchPieces);
    }
    if (batch.sources.size() != count || batch.targets.size() != count || batch.sizes.size() != count) {
        return fail(Status::InvalidParam,
                    "%s: the batch has %zu sources, %zu targets and %zu sizes, each must be as many as the count %zu",
                    object_name_.c_str(), batch.sources.size(), batch.targets.size(), batch.sizes.size(), count);
    }
    std::vector<Piece> pieces(count);
    for (std::size_t i = 0; i < count; ++i) {
        pieces[i] = {reinterpret_cast<std::byte*>(batch.targets[i]),
                     reinterpret_cast<const std::byte*>(batch.sources[i]), batch.sizes[i]};
    }
    return is_queued(flags) ? queue(std::move(pieces), type, flags, stream) : run(pieces, type);
} catch (const std::bad_alloc&) {
    return fail(Status::MallocFailed, "%s: no memory to remember a batch of %zu pieces", object_name_.c_str(), count);
}

Status Space::copy_2d(const Rectangle& rectangle, std::uint32_t type, std::uint64_t flags, std::uint64_t stream) {
    return is_queued(flags) ? queue(rectangle, type, flags, stream) : run(rectangle, type);
}

// What is wrong with it is said at once and not at its turn.
template <typename Request>
Status Space::check_queued(const Request& request, std::uint32_t type) {
    const auto check = [&] {
        const rcu::ReadGuard guard;
        Resolution found;
        return resolver_.resolve(request, type, found);
    };
    const Status status = check();
    if (status == Status::Ok) return status;
    const std::vector<std::uint32_t> late = late_ranks(request, status);
    return late.empty() ? status : after_news(late, status, check);
}

Status Space::queue(CopyRequest request, std::uint32_t type, std::uint64_t flags, std::uint64_t stream_handle) try {
    if (const Status status = std::visit([&](const auto& what) { return check_queued(what, type); }, request);
        status != Status::Ok) {
        return status;
    }
    const auto kept = std::make_shared<const CopyRequest>(std::move(request));
    const auto run_kept = [type, kept](Space& space) {
        return Stream::run_cancellable(
            [&] { return std::visit([&](const auto& what) { return space.run(what, type); }, *kept); });
    };
    if ((flags & kFlagStream) != 0) {
        const std::shared_ptr<Stream> stream = Stream::find(stream_handle);
        if (stream == nullptr) {
            return fail(Status::InvalidParam, "%s: %" PRIu64 " is not the handle of an open stream",
                        object_name_.c_str(), stream_handle);
        }
        return pending_.submit(stream, [space = shared_from_this(), run_kept] { return run_kept(*space); });
    }
    // `this` is enough here: close() ends this stream's work before the space goes. A shared_ptr could let the stream's
    // own thread drop the last reference, and the thread would have to join itself.
    const std::shared_ptr<Stream> stream = own_stream();
    if (stream == nullptr) return object_state_.check();
    return pending_.submit(stream, [this, run_kept] { return run_kept(*this); });
} catch (const std::bad_alloc&) {
    return fail(Status::MallocFailed, "%s: no memory to queue a copy", object_name_.c_str());
}

// nullptr once the object is closed.
std::shared_ptr<Stream> Space::own_stream() {
    const std::lock_guard lock(stream_mutex_);
    if (stream_ == nullptr && !object_state_.is_closed()) stream_ = Stream::make();
    return stream_;
}

Status Space::wait() {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    if (const Status status = pending_.wait(); status != Status::Ok) return status;
    return object_state_.check();
}

}  // namespace memfabric
