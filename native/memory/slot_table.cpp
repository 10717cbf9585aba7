// SPDX-License-Identifier: Apache-2.0
#include "memory/slot_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/last_error.h"
#include "memory/exported_memory.h"
#include "memory/memfd.h"
#include "sync/backoff.h"
#include "sync/rcu.h"

namespace memfabric {

constinit std::atomic<std::uint64_t> RevocationClock::revocations_{0};

SlotTable::SlotTable(const Layout& layout, std::uint32_t local_rank, std::string object_name,
                     std::unique_ptr<Reservation> reservation)
    : layout_(layout),
      local_rank_(local_rank),
      object_name_(std::move(object_name)),
      slots_(layout.capacity()),
      reservation_(std::move(reservation)) {}

// Without the lock, which a thread of a forked child's parent may hold forever. There the addresses have been given up.
SlotTable::~SlotTable() {
    if (reservation_ != nullptr) end_own_ranges();
}

Status SlotTable::check_rank(std::uint32_t rank) const {
    if (rank < layout_.capacity()) return Status::Ok;
    return fail(Status::InvalidParam, "%s: rank %u does not exist, ranks are 0 to %u", object_name_.c_str(), rank,
                layout_.capacity() - 1);
}

Status SlotTable::attach(std::uint32_t rank, Tier tier, int fd, std::uint64_t fd_offset, std::uint64_t slot_offset,
                         std::uint64_t size_bytes, bool sealed) {
    if (const Status status = check_rank(rank); status != Status::Ok) return status;
    drain(rank);
    const std::lock_guard lock(mapping_);
    if (const Status status = check_growth(rank, tier, slot_offset, size_bytes); status != Status::Ok) return status;
    Slot& slot = slots_[rank];
    auto& allocated = slot.allocated_bytes[index_of(tier)];
    const std::uint64_t present = allocated.load(std::memory_order_relaxed);
    if (sealed && !cannot_shrink(fd)) {
        return fail(Status::InvalidParam,
                    "%s: the memory that rank %u shows is a file that can still be cut (no seals)",
                    object_name_.c_str(), rank);
    }
    struct stat file{};
    if (fstat(fd, &file) != 0 || static_cast<std::uint64_t>(file.st_size) < size_bytes ||
        static_cast<std::uint64_t>(file.st_size) - size_bytes < fd_offset) {
        return fail(Status::InvalidParam,
                    "%s: file descriptor %d has %" PRIu64 " bytes, too few for %" PRIu64 " bytes from offset %" PRIu64,
                    object_name_.c_str(), fd, static_cast<std::uint64_t>(file.st_size), size_bytes, fd_offset);
    }
    const std::uintptr_t address = layout_.slot_address(rank, tier) + present;
    if (const Status status = reservation_->map(address, size_bytes, fd, fd_offset); status != Status::Ok)
        return status;
    auto& mapped = slot.mapped_bytes[index_of(tier)];
    mapped = std::max(mapped, present + size_bytes);
    if (rank == local_rank_) {
        const std::uint32_t id = ExportedMemory::process().add(address, size_bytes, fd, fd_offset);
        if (id != 0) own_ranges_.push_back({tier, slot_offset, id});
    }
    slot.is_far.store(false, std::memory_order_seq_cst);
    allocated.store(present + size_bytes, std::memory_order_seq_cst);
    return Status::Ok;
}

// With the mapping mutex held.
Status SlotTable::check_growth(std::uint32_t rank, Tier tier, std::uint64_t slot_offset,
                               std::uint64_t size_bytes) const {
    if (reservation_ == nullptr) return fail(Status::InvalidParam, "%s: the handle is closed", object_name_.c_str());
    const std::uint64_t present = allocated_bytes(rank, tier);
    const std::uint64_t limit = layout_.max_bytes(tier);
    if (slot_offset == present && size_bytes != 0 && size_bytes <= limit - present) return Status::Ok;
    return fail(Status::InvalidParam,
                "%s: cannot attach %" PRIu64 " bytes at offset %" PRIu64 " of rank %u's %s: the slot holds %" PRIu64
                " of at most %" PRIu64 " bytes and grows at its end only",
                object_name_.c_str(), size_bytes, slot_offset, rank, name_of(tier), present, limit);
}

Status SlotTable::attach_remote(std::uint32_t rank, Tier tier, std::uint64_t slot_offset, std::uint64_t size_bytes,
                                std::shared_ptr<Transport> transport) {
    if (const Status status = check_rank(rank); status != Status::Ok) return status;
    drain(rank);
    const std::lock_guard lock(mapping_);
    if (const Status status = check_growth(rank, tier, slot_offset, size_bytes); status != Status::Ok) return status;
    Slot& slot = slots_[rank];
    slot.is_far.store(true, std::memory_order_seq_cst);
    slot.transport.store(transport.get(), std::memory_order_seq_cst);
    slot.owned_transport = std::move(transport);
    slot.allocated_bytes[index_of(tier)].store(slot_offset + size_bytes, std::memory_order_seq_cst);
    return Status::Ok;
}

Status SlotTable::activate(std::uint32_t rank) {
    if (const Status status = check_rank(rank); status != Status::Ok) return status;
    const std::lock_guard lock(presence_);
    slots_[rank].presence.store(Presence::Live, std::memory_order_seq_cst);
    return Status::Ok;
}

Status SlotTable::revoke(std::uint32_t rank, const std::string& reason) {
    if (const Status status = check_rank(rank); status != Status::Ok) return status;
    const std::lock_guard lock(presence_);
    Slot& slot = slots_[rank];
    slot.gone_because = reason;
    // Presence before the clock: a copy that started in between fails its check, one that ends in between ended
    // before this call returned.
    slot.presence.store(Presence::Gone, std::memory_order_seq_cst);
    slot.revoked_at.store(RevocationClock::tick(), std::memory_order_seq_cst);
    return Status::Ok;
}

Status SlotTable::detach(std::uint32_t rank) {
    if (const Status status = check_rank(rank); status != Status::Ok) return status;
    Slot& slot = slots_[rank];
    if (live(rank)) {
        if (const Status status = revoke(rank, "its memory was detached"); status != Status::Ok) return status;
    }
    const std::lock_guard lock(mapping_);
    for (auto& allocated : slot.allocated_bytes) allocated.store(0, std::memory_order_seq_cst);
    if (slot.draining == 0) ++draining_;
    slot.draining = rcu::begin_grace_period();
    collect(rank);
    return Status::Ok;
}

bool SlotTable::collect() {
    const std::lock_guard lock(mapping_);
    for (std::uint32_t rank = 0; rank < layout_.capacity() && draining_ != 0; ++rank) collect(rank);
    return draining_ == 0;
}

// With the lock held. False while copies may still use what was detached.
bool SlotTable::collect(std::uint32_t rank) {
    Slot& slot = slots_[rank];
    if (slot.draining == 0) return true;
    if (!rcu::grace_period_ended(slot.draining) || slot.moves.load(std::memory_order_seq_cst) != 0) return false;
    slot.draining = 0;
    --draining_;
    release(rank);
    return true;
}

bool SlotTable::is_drained(std::uint32_t rank) {
    const std::lock_guard lock(mapping_);
    return rank >= layout_.capacity() || collect(rank);
}

void SlotTable::drain(std::uint32_t rank) {
    for (Backoff backoff; !is_drained(rank); backoff.wait()) {
    }
}

void SlotTable::detach_all(const std::string& reason) {
    for (std::uint32_t rank = 0; rank < layout_.capacity(); ++rank) {
        if (live(rank)) static_cast<void>(revoke(rank, reason));
    }
    {
        const std::lock_guard lock(mapping_);
        for (Slot& slot : slots_) {
            for (auto& allocated : slot.allocated_bytes) allocated.store(0, std::memory_order_seq_cst);
        }
    }
    rcu::synchronize();
    for (const Slot& slot : slots_) {
        Backoff backoff;
        while (slot.moves.load(std::memory_order_seq_cst) != 0) backoff.wait();
    }
    const std::lock_guard lock(mapping_);
    for (std::uint32_t rank = 0; rank < layout_.capacity(); ++rank) {
        slots_[rank].draining = 0;
        release(rank);
    }
    draining_ = 0;
}

// With the lock held, when nobody moves anything in what was detached.
void SlotTable::release(std::uint32_t rank) {
    Slot& slot = slots_[rank];
    if (slot.pins == 0) trim(rank);
    const bool is_empty = std::ranges::all_of(slot.allocated_bytes, [](const auto& bytes) { return bytes == 0; });
    if (!is_empty) return;
    slot.transport.store(nullptr, std::memory_order_seq_cst);
    slot.owned_transport.reset();
}

Status SlotTable::pin(std::uint32_t rank, Tier tier, std::uint64_t offset, std::uint64_t size_bytes, std::byte*& data) {
    if (const Status status = check_rank(rank); status != Status::Ok) return status;
    const std::lock_guard lock(mapping_);
    if (!live(rank)) return not_live(rank);
    const std::uint64_t present = allocated_bytes(rank, tier);
    if (offset > present || size_bytes > present - offset) {
        return fail(Status::InvalidParam,
                    "%s: %" PRIu64 " bytes from offset %" PRIu64 " do not lie in the %s of rank %u, which has %" PRIu64
                    " bytes",
                    object_name_.c_str(), size_bytes, offset, name_of(tier), rank, present);
    }
    if (slots_[rank].owned_transport != nullptr) {
        return fail(Status::InvalidParam,
                    "%s: the memory of rank %u is not mapped in this process: copy it, it cannot be viewed",
                    object_name_.c_str(), rank);
    }
    ++slots_[rank].pins;
    ++pins_;
    data = reinterpret_cast<std::byte*>(layout_.slot_address(rank, tier) + offset);
    return Status::Ok;
}

void SlotTable::unpin(std::uint32_t rank) {
    const std::lock_guard lock(mapping_);
    --pins_;
    if (--slots_[rank].pins == 0 && collect(rank)) trim(rank);
}

bool SlotTable::pinned() const {
    const std::lock_guard lock(mapping_);
    return pins_ != 0;
}

void SlotTable::release_addresses() {
    const std::lock_guard lock(mapping_);
    end_own_ranges();
    reservation_.reset();
}

void SlotTable::abandon_addresses() {
    const std::unique_lock lock(mapping_, std::try_to_lock);  // a thread of the parent may hold it forever
    if (lock.owns_lock() && pins_ == 0) {
        reservation_.reset();
    } else {
        static_cast<void>(reservation_.release());
    }
}

// Without the lock: a thread of the parent may hold it forever, and no other thread knows this object here.
std::unique_ptr<Reservation> SlotTable::surrender_in_child() {
    for (std::uint32_t rank = 0; rank < layout_.capacity(); ++rank) {
        for (const Tier tier : {Tier::Dram, Tier::Hbm}) {
            if (slots_[rank].pins != 0) break;
            reservation_->unmap(layout_.slot_address(rank, tier), slots_[rank].mapped_bytes[index_of(tier)]);
        }
    }
    return std::move(reservation_);
}

void SlotTable::take_pins_of(const SlotTable& predecessor) {
    const std::lock_guard lock(mapping_);
    for (std::uint32_t rank = 0; rank < layout_.capacity(); ++rank) {
        const Slot& before = predecessor.slots_[rank];
        if (before.pins == 0) continue;
        slots_[rank].pins = before.pins;
        slots_[rank].mapped_bytes = before.mapped_bytes;
        pins_ += before.pins;
    }
}

// Unmaps what is mapped but no longer allocated.
void SlotTable::trim(std::uint32_t rank) {
    if (reservation_ == nullptr) return;
    for (const Tier tier : {Tier::Dram, Tier::Hbm}) {
        std::uint64_t& mapped = slots_[rank].mapped_bytes[index_of(tier)];
        const std::uint64_t kept = allocated_bytes(rank, tier);
        if (rank == local_rank_) end_own_ranges(tier, kept);
        reservation_->unmap(layout_.slot_address(rank, tier) + kept, mapped - kept);
        mapped = kept;
    }
}

// Whoever shows this memory to other processes stops before it goes.
void SlotTable::end_own_ranges(Tier tier, std::uint64_t from_offset) {
    std::erase_if(own_ranges_, [&](const OwnRange& range) {
        if (range.tier != tier || range.slot_offset < from_offset) return false;
        ExportedMemory::process().remove(range.id);
        return true;
    });
}

// All that are left: addresses that are still shown would lead peers to our file when they are somebody else's.
void SlotTable::end_own_ranges() {
    for (const Tier tier : {Tier::Dram, Tier::Hbm}) end_own_ranges(tier, 0);
}

Status SlotTable::resolve(const char* name, Extent extent, Classes wanted, const char* type_name, Side& side) const {
    const SlotPlace place = layout_.locate(extent.address);
    const Slot& slot = slots_[place.rank];
    const auto& allocated_bytes = slot.allocated_bytes[index_of(place.tier)];
    if (extent.size_bytes > place.end - extent.address) [[unlikely]]
        return outside(name, extent, place, allocated_bytes.load(std::memory_order_seq_cst));
    if ((classes_of(place) & wanted) == 0) [[unlikely]] {
        return fail(Status::InvalidParam, "%s: the %s of a %s copy must be %s, but 0x%" PRIxPTR " is rank %u's %s%s",
                    object_name_.c_str(), name, type_name, describe(wanted), extent.address, place.rank,
                    name_of(place.tier), place.rank == local_rank_ ? " (this rank)" : "");
    }
    const std::uint64_t revoked_at = slot.revoked_at.load(std::memory_order_seq_cst);
    if (slot.presence.load(std::memory_order_seq_cst) != Presence::Live) [[unlikely]]
        return not_live(place.rank);
    const std::uint64_t allocated = allocated_bytes.load(std::memory_order_seq_cst);
    const std::uint64_t offset = extent.address - place.start;
    if (offset >= allocated || extent.size_bytes > allocated - offset) [[unlikely]] {
        // Too little because the rank was just taken away is not the caller's mistake.
        const bool revoked_meanwhile =
            !live(place.rank) || slot.revoked_at.load(std::memory_order_seq_cst) != revoked_at;
        return revoked_meanwhile ? not_live(place.rank) : outside(name, extent, place, allocated);
    }
    side = {this, place.rank, slot.transport.load(std::memory_order_seq_cst)};
    return Status::Ok;
}

Status SlotTable::recheck(std::uint32_t rank, std::uint64_t since) const {
    const Slot& slot = slots_[rank];
    const bool still_live = slot.presence.load(std::memory_order_seq_cst) == Presence::Live;
    if (still_live && slot.revoked_at.load(std::memory_order_seq_cst) <= since) return Status::Ok;
    if (!still_live) return not_live(rank);
    return fail(Status::NotConnected, "%s: rank %u went away during the copy and came back since; repeat the copy",
                object_name_.c_str(), rank);
}

Classes SlotTable::classes_of(const SlotPlace& place) const {
    if (place.rank == local_rank_) return place.tier == Tier::Dram ? kOwnDram : kOwnHbm;
    return place.tier == Tier::Dram ? kOtherDram : kOtherHbm;
}

Status SlotTable::not_live(std::uint32_t rank) const {
    const std::lock_guard lock(presence_);
    const Slot& slot = slots_[rank];
    if (slot.presence.load(std::memory_order_relaxed) == Presence::Absent) {
        return fail(Status::NotConnected, "%s: rank %u has not joined; wait until it has", object_name_.c_str(), rank);
    }
    return fail(Status::NotConnected, "%s: rank %u cannot be reached: %s", object_name_.c_str(), rank,
                slot.gone_because.c_str());
}

Status SlotTable::outside(const char* side, Extent extent, const SlotPlace& place,
                          std::uint64_t allocated_bytes) const {
    return fail(Status::InvalidParam,
                "%s: the %s of %zu bytes at 0x%" PRIxPTR " does not lie in the %s of rank %u, which has %" PRIu64
                " bytes: 0x%" PRIxPTR "-0x%" PRIxPTR,
                object_name_.c_str(), side, extent.size_bytes, extent.address, name_of(place.tier), place.rank,
                allocated_bytes, place.start, place.start + allocated_bytes);
}

bool SlotTable::addressable(std::uintptr_t address) const {
    if (!layout_.contains(address)) return false;
    const SlotPlace place = layout_.locate(address);
    return live(place.rank) && address - place.start < allocated_bytes(place.rank, place.tier) &&
           slots_[place.rank].transport.load(std::memory_order_seq_cst) == nullptr;
}

std::uint64_t SlotTable::allocated_bytes(std::uint32_t rank, Tier tier) const {
    return slots_[rank].allocated_bytes[index_of(tier)].load(std::memory_order_seq_cst);
}

std::optional<std::uint32_t> SlotTable::late_rank(std::uintptr_t address, bool also_gone) const {
    if (!layout_.contains(address)) return std::nullopt;
    const std::uint32_t rank = layout_.locate(address).rank;
    const Slot& slot = slots_[rank];
    const Presence presence = slot.presence.load(std::memory_order_seq_cst);
    const bool is_empty = std::ranges::all_of(slot.allocated_bytes, [](const auto& bytes) { return bytes == 0; });
    const bool is_late = slot.is_far.load(std::memory_order_seq_cst) || presence == Presence::Absent ||
                         (presence == Presence::Live && is_empty) || (presence == Presence::Gone && also_gone);
    return is_late ? std::optional(rank) : std::nullopt;
}

bool SlotTable::live(std::uint32_t rank) const {
    return slots_[rank].presence.load(std::memory_order_seq_cst) == Presence::Live;
}

}  // namespace memfabric
