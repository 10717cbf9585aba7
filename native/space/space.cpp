// SPDX-License-Identifier: Apache-2.0
#include "space/space.h"

#include <unistd.h>

#include <cinttypes>
#include <memory>
#include <new>
#include <utility>
#include <variant>

#include "base/cancellation.h"
#include "base/interruption.h"
#include "base/last_error.h"
#include "base/pause_point.h"
#include "copy/revocable.h"
#include "memory/move_pins.h"
#include "space/region_table.h"
#include "space/routed_copy.h"
#include "sync/rcu.h"

namespace memfabric {
namespace {

Status check(const Space::Config& config) {
    const char* name = config.object_name.c_str();
    if (config.capacity == 0 || config.capacity > kMaxRanks) {
        return fail(Status::InvalidParam, "%s: the world size is %u, it must be 1 to %u", name, config.capacity,
                    kMaxRanks);
    }
    if (config.local_rank >= config.capacity) {
        return fail(Status::InvalidParam, "%s: the rank is %u, it must be below the world size %u", name,
                    config.local_rank, config.capacity);
    }
    const auto page_bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    if (config.base % page_bytes != 0 || config.max_dram_bytes % page_bytes != 0 ||
        config.max_hbm_bytes % page_bytes != 0) {
        return fail(Status::InvalidParam,
                    "%s: base 0x%" PRIxPTR ", %" PRIu64 " bytes of DRAM and %" PRIu64
                    " of HBM must be multiples of the page size %" PRIu64,
                    name, config.base, config.max_dram_bytes, config.max_hbm_bytes, page_bytes);
    }
    const std::uint64_t per_rank = kAddressLimit / config.capacity;
    if (config.max_dram_bytes > per_rank || config.max_hbm_bytes > per_rank - config.max_dram_bytes ||
        config.max_dram_bytes + config.max_hbm_bytes == 0 || config.base < kLowestAddress ||
        config.base > kAddressLimit - config.capacity * (config.max_dram_bytes + config.max_hbm_bytes)) {
        return fail(Status::InvalidParam,
                    "%s: %u ranks with %" PRIu64 " bytes of DRAM and %" PRIu64 " of HBM each from 0x%" PRIxPTR
                    " on do not fit into the addresses 0x%" PRIxPTR " to 0x%" PRIxPTR,
                    name, config.capacity, config.max_dram_bytes, config.max_hbm_bytes, config.base, kLowestAddress,
                    kAddressLimit);
    }
    return Status::Ok;
}

// The object of this process that owns a part of the range, if any.
std::shared_ptr<Space> owner_within(const Layout& layout) {
    const rcu::ReadGuard guard;
    const Region* region = RegionTable::process().first_touched(layout.base(), layout.size_bytes());
    return region == nullptr ? nullptr : region->space->weak_from_this().lock();
}

// Names an object that is in the way: clearer than what the kernel could say. A forked child joins the parent's pool at
// the parent's addresses; what it inherited there is of no use to it and makes room.
Status check_free(const Space::Config& config, const Layout& layout, std::shared_ptr<Space>& inherited) {
    std::shared_ptr<Space> owner = owner_within(layout);
    for (; owner != nullptr && owner->is_disowned(); owner = owner_within(layout)) {
        if (owner->layout() == layout && owner->slots().has_addresses()) {
            inherited = std::move(owner);
            return Status::Ok;
        }
        owner->close();
    }
    if (owner == nullptr) return Status::Ok;
    return fail(Status::MallocFailed,
                "%s: the address range 0x%" PRIxPTR "-0x%" PRIxPTR " is taken in this process by %s; %s",
                config.object_name.c_str(), layout.base(), layout.end(), owner->object_name().c_str(),
                owner->is_closed() ? "it is closed, but arrays on its memory still exist: delete them"
                                   : "destroy that object first");
}

}  // namespace

Status Space::make(const Config& config, std::shared_ptr<Space>& made) {
    if (const Status status = check(config); status != Status::Ok) return status;
    const Layout layout(config.base, config.capacity, config.max_dram_bytes, config.max_hbm_bytes);
    std::shared_ptr<Space> inherited;
    if (const Status status = check_free(config, layout, inherited); status != Status::Ok) return status;
    std::unique_ptr<Reservation> reservation;
    if (inherited != nullptr) {
        RegionTable::process().remove(layout.base());
        reservation = inherited->slots_.surrender_in_child();
        inherited->retired_ = true;
    } else if (const Status status =
                   Reservation::make(layout.base(), layout.size_bytes(), config.object_name, reservation);
               status != Status::Ok) {
        return status;
    }
    made.reset(new Space(config, layout, std::move(reservation)));
    if (inherited != nullptr) {
        made->slots_.take_pins_of(inherited->slots_);
        inherited->heir_ = made;
    }
    RegionTable::process().add({layout.base(), layout.end(), made.get()});
    return Status::Ok;
}

Space::Space(const Config& config, const Layout& layout, std::unique_ptr<Reservation> reservation)
    : layout_(layout),
      local_rank_(config.local_rank),
      object_name_(config.object_name),
      engine_(CopyEngine::process()),
      object_state_(config.object_name),
      slots_(layout, config.local_rank, config.object_name, std::move(reservation)),
      resolver_(layout_, slots_, object_state_, object_name_) {}

Space::~Space() { close(); }

Status Space::attach(std::uint32_t rank, Tier tier, int fd, std::uint64_t fd_offset, std::uint64_t slot_offset,
                     std::uint64_t size_bytes, bool sealed) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    return slots_.attach(rank, tier, fd, fd_offset, slot_offset, size_bytes, sealed);
}

Status Space::attach_remote(std::uint32_t rank, Tier tier, std::uint64_t slot_offset, std::uint64_t size_bytes,
                            std::shared_ptr<Transport> transport) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    return slots_.attach_remote(rank, tier, slot_offset, size_bytes, std::move(transport));
}

Status Space::activate(std::uint32_t rank) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    return slots_.activate(rank);
}

Status Space::revoke(std::uint32_t rank, const std::string& reason) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    return slots_.revoke(rank, reason);
}

Status Space::detach(std::uint32_t rank) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    return slots_.detach(rank);
}

void Space::close() {
    if (is_disowned()) return retire_in_child();
    if (!object_state_.close()) return;
    const DeferredInterruption deferred;
    slots_.detach_all("the object was closed");
    std::shared_ptr<Stream> stream;
    {
        const std::lock_guard lock(stream_mutex_);
        stream = std::move(stream_);
    }
    if (stream != nullptr) static_cast<void>(stream->close());  // what was queued fails, because the object is closed
    retire();
}

// Gives the addresses back once the object is closed and the last view is gone, whichever comes later.
void Space::retire() {
    const std::lock_guard lock(retire_mutex_);
    if (retired_ || slots_.pinned()) return;
    RegionTable::process().remove(layout_.base());  // before somebody else can reserve the addresses
    slots_.release_addresses();
    retired_ = true;
}

// In a forked child nothing runs that would have to be waited for, and no lock may be waited for.
void Space::retire_in_child() {
    if (std::exchange(retired_, true)) return;
    RegionTable::process().remove(layout_.base());
    slots_.abandon_addresses();
}

Status Space::view(std::uint32_t rank, Tier tier, std::uint64_t offset, std::uint64_t size_bytes,
                   std::shared_ptr<View>& made) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    std::byte* data = nullptr;
    if (const Status status = slots_.pin(rank, tier, offset, size_bytes, data); status != Status::Ok) return status;
    made = std::make_shared<View>(shared_from_this(), rank, data, size_bytes);
    return Status::Ok;
}

void Space::unpin(std::uint32_t rank) {
    if (is_disowned()) {
        if (heir_ != nullptr) heir_->unpin(rank);
        return;
    }
    slots_.unpin(rank);
    if (object_state_.is_closed()) retire();
}

std::uint32_t Space::rank_of(std::uintptr_t address) const {
    if (object_state_.check_usable() != Status::Ok) return kNoRank;
    if (layout_.contains(address)) return layout_.locate(address).rank;
    static_cast<void>(fail(Status::InvalidParam,
                           "%s: 0x%" PRIxPTR " lies outside the object's range 0x%" PRIxPTR "-0x%" PRIxPTR,
                           object_name_.c_str(), address, layout_.base(), layout_.end()));
    return kNoRank;
}

View::View(std::shared_ptr<Space> space, std::uint32_t rank, std::byte* data, std::size_t size_bytes)
    : space_(std::move(space)), rank_(rank), data_(data), size_bytes_(size_bytes) {}

View::~View() { space_->unpin(rank_); }

// The copies of a space: resolve, move, check again.
//
// Budget of one copy that is neither queued nor long nor remote: one guard, two look-ups (a subtraction and a division
// each, or one binary search of the process's regions), the bytes, one comparison of the revocation clock, one count.
// No lock, no system call, no allocation.
template <typename Request>
Status Space::run(const Request& request, std::uint32_t type) {
    rcu::ReadGuard guard;
    Resolution found;
    if (const Status status = resolver_.resolve(request, type, found); status != Status::Ok) [[unlikely]]
        return status;
    if (found.total_bytes > kChunkBytes || found.is_remote) [[unlikely]]
        return run_long(guard, request, type, found);
    move(engine_, request);
    guard.traffic().add(Route::Mapped, Operation::Copy, found.total_bytes);
    return resolver_.recheck(request, found);
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
    Outcome outcome = routed.run(may_go_on);
    if (outcome.status == Status::Ok) {
        outcome.status = may_go_on();
        if (outcome.status == Status::Ok) return Status::Ok;
        outcome.reason = take_last_error();
    }
    const bool touched = outcome.moved_bytes != 0 || outcome.may_have_touched_more;
    if (!touched || outcome.status == Status::Interrupted)
        return fail(outcome.status, "%s: %s", object_name_.c_str(), outcome.reason.c_str());
    return fail(Status::PartialFailed, "%s: %s; %zu of %zu bytes were moved", object_name_.c_str(),
                outcome.reason.c_str(), outcome.moved_bytes, routed.total_bytes());
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
        Resolution found;
        const Status status =
            std::visit([&](const auto& what) { return resolver_.resolve(what, type, found); }, request);
        if (status != Status::Ok) return status;
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
