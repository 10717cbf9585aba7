// SPDX-License-Identifier: Apache-2.0
//
// The copies of a space: check, move, check again.
//
// Budget of one copy that is neither queued nor large: one guard, two look-ups (a subtraction and a division each, or
// one binary search of the process's regions), the bytes, one comparison of the revocation clock. No lock, no system
// call, no allocation.
#include <cinttypes>
#include <memory>
#include <new>
#include <utility>
#include <variant>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "copy/revocable.h"
#include "space/space.h"
#include "sync/rcu.h"

namespace memfabric {

template <typename Request>
Status Space::run(const Request& request, std::uint32_t type) {
    rcu::ReadGuard guard;
    Admission admission;
    if (const Status status = check_.admit(request, type, admission); status != Status::Ok) [[unlikely]]
        return status;
    Owners others;
    return move_chunked(engine_, request, [&](bool more) {
        if (more) {  // between chunks others may unmap; `recheck` then finds out
            PausePoint::reach("space.copy.between_chunks");
            if (admission.touches_other_object && others.empty()) others = check_.other_owners(request);
            guard.renew();
        }
        return check_.recheck(request, admission, others);
    });
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
        return fail(Status::InvalidParam, "%s: the batch has %zu pieces, it must have 1 to %zu", object_name_.c_str(),
                    count, kMaxBatchPieces);
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

Status Space::queue(CopyRequest request, std::uint32_t type, std::uint64_t flags, std::uint64_t stream_handle) try {
    {
        const rcu::ReadGuard guard;
        Admission admission;
        const Status status =
            std::visit([&](const auto& what) { return check_.admit(what, type, admission); }, request);
        if (status != Status::Ok) return status;
    }
    const auto kept = std::make_shared<const CopyRequest>(std::move(request));
    const auto run_kept = [type, kept](Space& space) {
        return std::visit([&](const auto& what) { return space.run(what, type); }, *kept);
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
