// SPDX-License-Identifier: Apache-2.0
#include "space/space.h"

#include <unistd.h>

#include <cinttypes>
#include <memory>
#include <new>
#include <utility>

#include "base/interruption.h"
#include "base/last_error.h"
#include "space/region_table.h"
#include "sync/rcu.h"
#include "tcp/server.h"

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
      stall_limit_(config.stall_limit),
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
    stop_serving();
    slots_.detach_all("the object was closed");
    std::shared_ptr<Stream> stream;
    {
        const std::lock_guard lock(stream_mutex_);
        stream = std::move(stream_);
    }
    if (stream != nullptr) static_cast<void>(stream->close());  // what was queued fails, because the object is closed
    retire();
}

Status Space::serve(Connect& connect) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    Connect wanted;
    fill_random(wanted.target);
    fill_random(wanted.secret);
    auto exposed = std::make_shared<ExposedSlot>(*this);
    auto served = std::make_unique<tcp::ServedMemory>(wanted, exposed);  // gone again if there is one
    const std::lock_guard lock(serve_mutex_);
    // Whoever closes it comes here after that: nothing is served then that nobody would end.
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    if (served_ == nullptr) {
        exposed_ = std::move(exposed);
        served_ = std::move(served);
    }
    connect = served_->connect();
    return Status::Ok;
}

Status Space::serve_ucx(const ucx::Options& options, ucx::RemoteMemory& for_initiators) {
    if (const Status status = object_state_.check_usable(); status != Status::Ok) return status;
    return ucx_slot_.serve(*this, options, for_initiators);
}

// Nobody begins any more; who is inside is waited for when the memory goes, except by UCX: nobody is inside any more.
void Space::stop_serving() {
    ucx_slot_.end_ever();
    std::unique_ptr<tcp::ServedMemory> served;
    std::shared_ptr<const CatchUp> catch_up;
    const std::lock_guard lock(serve_mutex_);
    if (exposed_ != nullptr) exposed_->end();
    served = std::move(served_);
    catch_up = std::move(catch_up_);
}

Status Space::shut(Status code, const std::string& sentence) {
    is_exposed_.store(false, std::memory_order_seq_cst);  // before the clock of revocations, which this moves
    return object_state_.shut(code, sentence);
}

void Space::conceal() {
    is_exposed_.store(false, std::memory_order_seq_cst);
    RevocationClock::tick();
    if (tcp::Server::process().connections() != 0) rcu::synchronize();
    ucx_slot_.end();
}

void Space::set_catch_up(CatchUp catch_up, bool also_gone) {
    asks_for_gone_.store(also_gone, std::memory_order_relaxed);
    auto made = std::make_shared<const CatchUp>(std::move(catch_up));  // what it replaces goes without the lock
    const std::lock_guard lock(serve_mutex_);
    if (object_state_.check_usable() == Status::Ok) catch_up_.swap(made);
}

Status Space::catch_up(const std::vector<std::uint32_t>& ranks) {
    std::shared_ptr<const CatchUp> asked;
    {
        const std::lock_guard lock(serve_mutex_);
        asked = catch_up_;
    }
    return asked == nullptr ? Status::NotExist : (*asked)(ranks);
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
    served_.reset();
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

}  // namespace memfabric
