// SPDX-License-Identifier: Apache-2.0
//
// What an engine shows to its peers: which of its memory may be touched, and whether it is alive. One memory file that
// the engine alone can write; peers map it read-only and look at it before every transfer, so that registrations and
// removals count at once, with the engine's process doing nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/instance_id.h"
#include "memory/memfd.h"

namespace memfabric {

// What initiators of that engine call it.
inline std::uint64_t target_id(const InstanceId& instance) {
    std::uint64_t id = 0;
    std::memcpy(&id, instance.data(), sizeof id);
    return id;
}

inline constexpr std::uint32_t kPrivateMemory = 0;  // in no segment: reached through the kernel

// Registered addresses [start, end).
struct Interval {
    std::uint64_t start;
    std::uint64_t end;
    std::uint32_t segment;  // which peers can map: the id of its ExportedRange; or kPrivateMemory
};

// The words of the page. Intervals stand in two buffers; the low bit of `generation` says which one counts.
struct RegistrationWords {
    struct Entry {
        std::atomic<std::uint64_t> start;
        std::atomic<std::uint64_t> end;
        std::atomic<std::uint32_t> segment;
        std::uint32_t unused;
    };

    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t capacity;  // entries of one buffer
    InstanceId instance;
    std::atomic<std::uint32_t> life;  // see PeerProcess
    std::uint32_t unused;
    std::atomic<std::uint64_t> generation;
    std::array<std::atomic<std::uint64_t>, 2> counts;

    const Entry* buffer(std::uint64_t of_generation) const {
        const auto* first = reinterpret_cast<const Entry*>(reinterpret_cast<const std::byte*>(this) + kHeaderBytes);
        return first + (of_generation & 1) * kCapacity;
    }
    Entry* buffer(std::uint64_t of_generation) {
        return const_cast<Entry*>(static_cast<const RegistrationWords*>(this)->buffer(of_generation));
    }

    static constexpr std::uint64_t kMagic = 0x5346'4d5f'5245'4749;
    static constexpr std::uint32_t kVersion = 1;
    static constexpr std::uint32_t kCapacity = 1U << 20;
    static constexpr std::size_t kHeaderBytes = 4096;
    static constexpr std::uint64_t kPageBytes = kHeaderBytes + 2 * std::uint64_t{kCapacity} * sizeof(Entry);
};
static_assert(sizeof(RegistrationWords::Entry) == 24 && std::atomic<std::uint64_t>::is_always_lock_free);

// The engine's side. Thread contract: `publish` by one thread at a time; the rest from any.
class RegistrationPage {
public:
    static Status make(const InstanceId& instance, std::unique_ptr<RegistrationPage>& made);

    // Intervals are sorted and disjoint, at most kCapacity. Counts for every peer when this returns.
    void publish(std::span<const Interval> intervals);

    int shown_fd() const { return shown_.get(); }
    std::atomic<std::uint32_t>& life() { return words().life; }
    RegistrationWords& words() { return *reinterpret_cast<RegistrationWords*>(mapping_.address()); }

private:
    SharedMapping mapping_;
    OwnedFd shown_;
};

}  // namespace memfabric
