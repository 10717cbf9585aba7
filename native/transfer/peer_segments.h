// SPDX-License-Identifier: Apache-2.0
//
// The memory files of a peer, and where they are in this process: transfers into them are plain copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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
    PeerSegments() : table_(new Table) {}
    ~PeerSegments() { delete table_.load(); }
    PeerSegments(const PeerSegments&) = delete;
    PeerSegments& operator=(const PeerSegments&) = delete;

    Status add(const Offered& offered, OwnedFd file);  // InvalidParam: not what it should be
    Status miss(const Offered& offered);               // its descriptor was lost on the way: known, but never mapped
    void remove(std::uint32_t id);
    void clear();
    bool collect();  // unmaps what was removed and nobody uses any more; true if nothing of that is left

    bool has(std::uint32_t id) const { return find(id) != nullptr; }
    std::uint32_t missed() const { return missed_.load(std::memory_order_relaxed); }  // so far

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
        for (const Entry& entry : *table_.load(std::memory_order_seq_cst)) {
            if (entry.id == id) return &entry;
        }
        return nullptr;
    }
    Status insert(const Offered& offered, std::shared_ptr<Held> held);
    std::byte* map(const Entry& entry);
    void publish(std::unique_ptr<const Table> table);

    std::mutex writers_;
    std::atomic<const Table*> table_;
    rcu::RetireList retired_;
    std::atomic<std::uint32_t> missed_{0};
};

}  // namespace memfabric
