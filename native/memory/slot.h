// SPDX-License-Identifier: Apache-2.0
//
// What a space knows about one rank: is it there, and how much of its two slots holds memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "memory/layout.h"

namespace memfabric {

class Transport;

// Counts revocations of anything in this process. A copy reads it before it checks and after the bytes have moved:
// unchanged means that nothing it touched can have been revoked meanwhile.
class RevocationClock {
public:
    static std::uint64_t now() { return revocations_.load(std::memory_order_seq_cst); }
    static std::uint64_t tick() { return revocations_.fetch_add(1, std::memory_order_seq_cst) + 1; }

private:
    static std::atomic<std::uint64_t> revocations_;
};

enum class Presence : std::uint8_t { Absent, Live, Gone };

struct Slot {
    // Read by copies under a guard, with seq_cst (see rcu.h). Memory safety rests on `allocated_bytes` alone: it is
    // set after memory was mapped, and cleared, with a grace period, before it is unmapped.
    std::array<std::atomic<std::uint64_t>, kTiers> allocated_bytes{};
    std::atomic<Presence> presence{Presence::Absent};
    std::atomic<std::uint64_t> revoked_at{0};    // on the revocation clock
    std::atomic<Transport*> transport{nullptr};  // to memory that is not mapped here; changes as `allocated_bytes`
    std::atomic<bool> is_far{false};             // only the store tells of this rank, and that takes a while

    // Long moves inside that have left the guard: raised under the guard of their check, so that whoever cleared
    // `allocated_bytes` and saw the grace period end sees them all.
    mutable std::atomic<std::uint32_t> moves{0};

    // Under the space's mapping mutex.
    std::uint64_t draining = 0;  // the grace period after which detached memory may go, if no move is inside; 0 = none
    std::array<std::uint64_t, kTiers> mapped_bytes{};  // more than allocated while views pin what was detached
    std::uint32_t pins = 0;                            // views of this rank's memory
    std::shared_ptr<Transport> owned_transport;

    // Under the space's presence mutex.
    std::string gone_because;
};

}  // namespace memfabric
