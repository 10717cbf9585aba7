// SPDX-License-Identifier: Apache-2.0
//
// A range of this process's addresses that belongs to us: nothing else can be mapped there, and touching a part that
// holds no memory is a fault, not somebody else's data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace memfabric {

// Thread contract: the methods are plain system calls; who calls them orders them.
class Reservation {
public:
    // Fails with MallocFailed if any page of the range is in use; the last error then names the mapping in the way.
    static Status make(std::uintptr_t base, std::size_t size_bytes, const std::string& owner,
                       std::unique_ptr<Reservation>& made);
    ~Reservation();
    Reservation(const Reservation&) = delete;
    Reservation& operator=(const Reservation&) = delete;

    // Replaces whatever the part shows by the file's memory, in one step for whoever reads it meanwhile.
    Status map(std::uintptr_t address, std::size_t size_bytes, int fd, std::uint64_t fd_offset);

    // Takes the memory of the part away; the addresses stay ours.
    void unmap(std::uintptr_t address, std::size_t size_bytes);

private:
    Reservation(std::uintptr_t base, std::size_t size_bytes, const std::string& owner)
        : base_(base), size_bytes_(size_bytes), owner_(owner) {}

    const std::uintptr_t base_;
    const std::size_t size_bytes_;
    const std::string owner_;  // for sentences
};

}  // namespace memfabric
