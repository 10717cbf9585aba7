// SPDX-License-Identifier: Apache-2.0
//
// The slots of one object: which ranks are there, and whose memory is mapped at which of the object's addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "copy/request.h"
#include "copy/type.h"
#include "memory/layout.h"
#include "memory/reservation.h"
#include "memory/slot.h"

namespace memfabric {

class SlotTable;

// Where one side of a copy lies.
struct Side {
    const SlotTable* slots = nullptr;  // of the object that owns it; nullptr: plain memory of this process
    std::uint32_t rank = 0;
    Transport* transport = nullptr;  // the way there; nullptr: it is mapped here
};

// Thread contract: every method may be called from any thread. `resolve` and `recheck` never block and need a
// rcu::ReadGuard, or a move that is begun inside. Nothing else waits for running copies but `drain`, `attach` (which
// drains) and `detach_all`: they must not hold a guard, nor a lock that anybody else needs.
class MF_API SlotTable {
public:
    SlotTable(const Layout& layout, std::uint32_t local_rank, std::string object_name,
              std::unique_ptr<Reservation> reservation);
    ~SlotTable();
    SlotTable(const SlotTable&) = delete;
    SlotTable& operator=(const SlotTable&) = delete;

    // Maps a piece of a segment behind what the slot already holds. Copies may use it once the rank is live. A file
    // that can be cut would be a crash of ours in somebody else's hands: `sealed` demands that it cannot.
    Status attach(std::uint32_t rank, Tier tier, int fd, std::uint64_t fd_offset, std::uint64_t slot_offset,
                  std::uint64_t size_bytes, bool sealed = false);
    // The same for memory that is not mapped here: `transport` leads there, by the same addresses.
    Status attach_remote(std::uint32_t rank, Tier tier, std::uint64_t slot_offset, std::uint64_t size_bytes,
                         std::shared_ptr<Transport> transport);
    Status activate(std::uint32_t rank);

    // From now on copies that touch the rank fail with NotConnected and this reason; running ones fail soon. At once.
    Status revoke(std::uint32_t rank, const std::string& reason);

    // Revokes if nobody did, and takes the memory away as soon as running copies and views have let go of it. At once.
    Status detach(std::uint32_t rank);
    bool collect();                  // takes away what nobody uses any more; true if nothing is left to be taken away
    void drain(std::uint32_t rank);  // waits until running copies have let go of what was detached
    bool is_drained(std::uint32_t rank);
    void detach_all(const std::string& reason);

    Status pin(std::uint32_t rank, Tier tier, std::uint64_t offset, std::uint64_t size_bytes, std::byte*& data);
    void unpin(std::uint32_t rank);

    bool pinned() const;
    // After detach_all, when nothing is pinned any more; what somebody has attached since goes with it.
    void release_addresses();
    void abandon_addresses();  // in a forked child: the same if it can be done without waiting for a lock

    // In a forked child an object's addresses go to its successor at the same place: arrays that were inherited pin the
    // memory they are on there, so that they never point to nothing. The rest is unmapped.
    std::unique_ptr<Reservation> surrender_in_child();
    void take_pins_of(const SlotTable& predecessor);
    bool has_addresses() const { return reservation_ != nullptr; }

    // May the extent be touched now, and how? `name` ("source" or "target") is for sentences. The extent must start
    // inside the layout.
    Status resolve(const char* name, Extent extent, Classes wanted, const char* type_name, Side& side) const;
    Status recheck(Extent extent, std::uint64_t since) const {
        return recheck(layout_.locate(extent.address).rank, since);
    }
    Status recheck(std::uint32_t rank, std::uint64_t since) const;

    // A move in the rank's memory that outlives the guard in which it was resolved: until `end_move` the memory is
    // neither unmapped nor somebody else's, and this table lives.
    void begin_move(std::uint32_t rank) const { slots_[rank].moves.fetch_add(1, std::memory_order_seq_cst); }
    void end_move(std::uint32_t rank) const { slots_[rank].moves.fetch_sub(1, std::memory_order_release); }

    Status check_rank(std::uint32_t rank) const;
    bool addressable(std::uintptr_t address) const;
    // The rank there, if it may have joined or grown without our knowing yet: nobody has shown it or memory of it to
    // us, or it is far, or it is gone and that is wanted.
    std::optional<std::uint32_t> late_rank(std::uintptr_t address, bool also_gone) const;
    std::uint64_t allocated_bytes(std::uint32_t rank, Tier tier) const;
    bool live(std::uint32_t rank) const;

private:
    Classes classes_of(const SlotPlace& place) const;
    Status not_live(std::uint32_t rank) const;
    Status outside(const char* side, Extent extent, const SlotPlace& place, std::uint64_t allocated_bytes) const;
    Status check_growth(std::uint32_t rank, Tier tier, std::uint64_t slot_offset, std::uint64_t size_bytes) const;
    bool collect(std::uint32_t rank);
    void release(std::uint32_t rank);
    void trim(std::uint32_t rank);
    void end_own_ranges(Tier tier, std::uint64_t from_offset);
    void end_own_ranges();

    const Layout layout_;
    const std::uint32_t local_rank_;
    const std::string object_name_;

    std::vector<Slot> slots_;
    mutable std::mutex presence_;  // reasons and changes of presence; held for moments only
    mutable std::mutex mapping_;   // changes of the mapping and pins; held for moments only
    std::unique_ptr<Reservation> reservation_;
    std::uint64_t pins_ = 0;
    std::uint32_t draining_ = 0;  // slots

    struct OwnRange {
        Tier tier;
        std::uint64_t slot_offset;
        std::uint32_t id;
    };
    std::vector<OwnRange> own_ranges_;  // of our own slot, as ExportedMemory knows them; under the mapping mutex
};

}  // namespace memfabric
