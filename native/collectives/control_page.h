// SPDX-License-Identifier: Apache-2.0
//
// The memory in which the ranks of one object and one host meet: life words, and group slots with rounds and mailboxes.
//
//     head │ life word of every rank │ group slot 0, 1, 2, … │ heap: member slots and mailboxes of the groups
//
// One rank of the host makes it, all map it, and it lives as long as anybody has it mapped: its maker may die. The file
// is sparse; what nobody uses takes no memory. Group slot 0 is everybody's, the others belong to named subgroups.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/api.h"
#include "base/limits.h"
#include "base/status.h"
#include "sync/event_count.h"
#include "sync/futex.h"

namespace memfabric {

inline constexpr std::size_t kMaxSubgroupName = 63;
inline constexpr std::size_t kMaxVerdictText = 255;

// One member of a group. Its own process writes it; the others read it once the round is complete.
struct alignas(64) MemberSlot {
    FutexWord arrived;                    // 1 + the round it has arrived for; for the sentence of a time-out
    FutexWord rank;                       // 1 + its rank in the object, 0 = nobody has claimed the slot yet
    std::atomic<std::uint32_t> bytes[2];  // in the mailbox, by parity of the round; 0 = a barrier
};

// Where a set of members meets, round after round; collective.h has the protocol.
struct GroupSlot {
    alignas(64) std::atomic<std::uint64_t> arrivals;  // round << 32 | all-gathers << 16 | members that have arrived
    alignas(64) FutexWord published;                  // rounds that are complete
    FutexWord full;                                   // 1 + the last round in which all members of this host arrived
    EventCount changed;                               // notified after changes of both, and when a rank is gone
    std::atomic<std::uint32_t> verdict[2];            // by parity of the round: 0, or why it failed
    char verdict_text[2][kMaxVerdictText + 1];

    alignas(64) std::atomic<std::uint32_t> state;  // kFree, kClaimed, kReady
    std::atomic<std::uint32_t> established;        // 1 = a round was completed: the members are known
    std::uint32_t size;                            // members; for subgroups
    std::uint64_t slots_at;                        // in bytes from the start of the page
    char name[kMaxSubgroupName + 1];

    static constexpr std::uint32_t kFree = 0, kClaimed = 1, kReady = 2;
};

struct RankLiveness {
    alignas(64) FutexWord word;  // host_liveness.h has the values
    FutexWord announced;         // 1 = everybody was told that the rank is gone
    FutexWord cause;             // 1 + the rank whose departure made it leave; 0 = it left of its own accord
};

class MF_API ControlPage {
public:
    // A new one for `rank_size` ranks; the descriptor is the caller's.
    static Status create(std::uint32_t rank_size, int& fd);
    // Maps it. Checks that it is one for so many ranks.
    static Status open(int fd, std::uint32_t rank_size, std::shared_ptr<ControlPage>& opened);
    ~ControlPage();
    ControlPage(const ControlPage&) = delete;
    ControlPage& operator=(const ControlPage&) = delete;

    std::uint32_t rank_size() const { return rank_size_; }
    FutexWord& life(std::uint32_t rank) const { return liveness_[rank].word; }
    FutexWord& announced(std::uint32_t rank) const { return liveness_[rank].announced; }
    FutexWord& cause(std::uint32_t rank) const { return liveness_[rank].cause; }
    FutexWord& departures() const;  // grows whenever a rank is found dead or leaves

    std::uint32_t group_count() const { return group_count_; }
    GroupSlot& group(std::uint32_t index) const { return groups_[index]; }
    MemberSlot* member_slots(const GroupSlot& group) const {
        return reinterpret_cast<MemberSlot*>(start_ + group.slots_at);
    }
    // The mailbox of one member of a group with `size` slots.
    std::byte* mailbox(const GroupSlot& group, std::uint32_t size, std::uint32_t slot, std::uint32_t parity) const;

    // The group of that name, made if there is none. Null and `busy`: somebody is just making one, look again soon.
    // Null and not busy: there is no room (NoResources; the last error says which limit).
    GroupSlot* subgroup(const std::string& name, std::uint32_t size, bool& busy);

private:
    struct Head;

    ControlPage(std::byte* start, std::uint64_t size_bytes, std::uint32_t rank_size);
    Head& head() const;
    std::uint64_t take_heap(std::uint64_t slots);  // where the block begins; 0 = no room

    std::byte* const start_;
    const std::uint64_t size_bytes_;
    const std::uint32_t rank_size_;
    const std::uint32_t group_count_;
    RankLiveness* liveness_;
    GroupSlot* groups_;
};

}  // namespace memfabric
