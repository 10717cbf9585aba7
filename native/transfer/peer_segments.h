// SPDX-License-Identifier: Apache-2.0
//
// The memory files of a peer, and where they are in this process: transfers into them are plain copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/frames.h"
#include "memory/memfd.h"
#include "sync/rcu.h"

namespace memfabric {

// Thread contract: any thread. `at` needs an rcu::ReadGuard: what it returns stays mapped until the guard is left.
// Files are mapped on first use: address space is the one thing that thousands of peers would exhaust.
class PeerSegments {
public:
    std::string session;  // for sentences; set before anybody else knows the peer

    Status add(const Offered& offered, OwnedFd file);  // InvalidParam: not what it should be
    Status miss(const Offered& offered);               // its descriptor was lost on the way: known, but never mapped
    void remove(std::uint32_t id);
    void clear();
    bool collect();  // unmaps what was removed and nobody uses any more; true if nothing of that is left

    bool has(std::uint32_t id) const { return find(id) != nullptr; }
    std::uint32_t missed() const { return missed_.load(std::memory_order_relaxed); }  // so far

    // Keeps the segment mapped after the guard, also when it is withdrawn. nullptr if it is not known.
    std::shared_ptr<const void> hold(std::uint32_t id) const {
        const Entry* entry = find(id);
        return entry == nullptr ? nullptr : entry->held;
    }

    // Where the peer's address is here; nullptr if the segment is not known or cannot be mapped.
    std::byte* at(std::uint32_t id, std::uint64_t address, std::uint64_t size_bytes) {
        const Entry* entry = find(id);
        if (entry == nullptr) return nullptr;
        const std::uint64_t offset = address - entry->start;
        if (offset > entry->size_bytes || size_bytes > entry->size_bytes - offset) return nullptr;
        std::byte* base = entry->held->base.load(std::memory_order_acquire);
        if (base == nullptr) [[unlikely]] {
            base = map(*entry);
            if (base == nullptr) return nullptr;
        }
        return base + offset;
    }

private:
    struct Held {
        std::uint64_t file_offset = 0;
        OwnedFd file;  // until it is mapped, or the kernel has refused that
        SharedMapping mapping;
        std::atomic<std::byte*> base{nullptr};  // of the segment's first byte
    };
    struct Entry {
        std::uint32_t id;
        std::uint64_t start;
        std::uint64_t size_bytes;
        std::shared_ptr<Held> held;
    };
    using Table = std::vector<Entry>;  // never changed once published; few entries

    const Entry* find(std::uint32_t id) const {
        for (const Entry& entry : table_.read()) {
            if (entry.id == id) return &entry;
        }
        return nullptr;
    }
    Status insert(const Offered& offered, std::shared_ptr<Held> held);
    std::byte* map(const Entry& entry);

    std::mutex writers_;
    rcu::Published<Table> table_;  // changed under `writers_`; mappings go with the last table that has them
    std::atomic<std::uint32_t> missed_{0};
};

}  // namespace memfabric
