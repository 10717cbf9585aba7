// SPDX-License-Identifier: Apache-2.0
//
// The memory that trans_malloc hands out: one sparse memory file per engine, which peers can map, so that transfers
// into it are plain copies. Nothing is reserved; freed parts go back to the machine at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/owned_fd.h"
#include "base/status.h"
#include "memory/memfd.h"

namespace memfabric {

// Thread contract: any thread.
class Arena {
public:
    static Status make(std::unique_ptr<Arena>& made);
    Arena() = default;
    ~Arena();  // waits for those who show its memory
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Status allocate(std::uint64_t size_bytes, std::uint64_t& address);
    bool size_of(std::uint64_t address, std::uint64_t& size_bytes) const;  // false: not the start of an allocation
    Status release(std::uint64_t address);

    std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(mapping_.address()); }
    std::uint64_t size_bytes() const { return mapping_.size_bytes(); }

private:
    mutable std::mutex mutex_;
    OwnedFd file_;
    SharedMapping mapping_;
    std::uint32_t range_ = 0;                           // as ExportedMemory knows it
    std::map<std::uint64_t, std::uint64_t> allocated_;  // offset → rounded size
};

}  // namespace memfabric
