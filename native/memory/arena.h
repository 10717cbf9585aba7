// SPDX-License-Identifier: Apache-2.0
//
// The memory that trans_malloc hands out: sparse memory files, which peers can map, so that transfers into it are plain
// copies. It grows in steps, each twice as large as all before; only addresses are reserved, and freed parts go back to
// the machine at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"
#include "memory/machine_memory.h"
#include "memory/memfd.h"

namespace memfabric {

// Thread contract: any thread.
class Arena {
public:
    Arena() = default;
    ~Arena() = default;  // waits for those who show its memory
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    Status allocate(std::uint64_t size_bytes, const MemoryLimit& limit, std::uint64_t& address);
    bool size_of(std::uint64_t address, std::uint64_t& size_bytes) const;  // false: not the start of an allocation
    Status release(std::uint64_t address);

private:
    // One file, mapped as a whole.
    class Step {
    public:
        static Status make(std::uint64_t size_bytes, std::unique_ptr<Step>& made);
        Step() = default;
        ~Step();
        Step(const Step&) = delete;
        Step& operator=(const Step&) = delete;

        bool take(std::uint64_t size_bytes, std::uint64_t alignment, std::uint64_t& address);
        Status give_back(std::uint64_t address);
        // 0: no allocation starts there.
        std::uint64_t allocated_bytes(std::uint64_t address) const;
        std::uint64_t size_bytes() const { return mapping_.size_bytes(); }

    private:
        std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(mapping_.address()); }

        OwnedFd file_;
        SharedMapping mapping_;
        std::uint32_t range_ = 0;                           // as ExportedMemory knows it
        std::map<std::uint64_t, std::uint64_t> allocated_;  // offset → rounded size
    };

    Status grow(std::uint64_t least_bytes);
    Step* holder_of(std::uint64_t address, std::uint64_t& size_bytes) const;

    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace memfabric
