// SPDX-License-Identifier: Apache-2.0
//
// What compute kernels know about the Share Memory objects of their process: a table at a fixed address, so that a
// kernel needs neither a library nor a call to find it. include/smem/device/smem_shm_aicore_base_api.h reads it from
// C and C++, src/memfabric_hybrid/device from Numba; the three layouts are one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/api.h"
#include "base/limits.h"
#include "base/status.h"

namespace memfabric {

inline constexpr std::uint32_t kDeviceObjects = 64;
inline constexpr std::uint32_t kMaxContextBytes = 64 * 1024;
// Right below the region of objects: above the shadow memory of AddressSanitizer, and within what valgrind can map.
inline constexpr std::uintptr_t kDeviceTableAddress = 0x1000'c000'0000;

struct DeviceEntry {
    std::uint32_t present;  // 0: there is no such object in this process
    std::uint32_t rank;
    std::uint32_t rank_size;
    std::uint32_t context_bytes;
    std::uint64_t gva;
    std::uint64_t symmetric_bytes;
    std::uint64_t context_address;
    std::uint64_t departures_address;  // of a 32-bit word that is not 0 once a rank of this host is gone
    std::uint64_t declared_address;    // of one that is not 0 once this process was told that a rank is gone
    std::uint64_t reserved;
};
static_assert(sizeof(DeviceEntry) == 64 && offsetof(DeviceEntry, gva) == 16);

// Behind the entries and their contexts: which ranks a kernel cannot load from and store to, because they are on other
// hosts, and what it calls to copy from and to them.
struct DeviceRoutes {
    std::uint32_t far_objects;  // that have such ranks: while it is 0, all memory of all objects is mapped here
    std::uint32_t reserved;
    std::uint64_t copy_address;  // of `int32_t copy(void* target, const void* source, uint64_t size_bytes)`; 0 is good
    std::uint8_t is_far[kDeviceObjects][kMaxRanks];
};
static_assert(offsetof(DeviceRoutes, copy_address) == 8 && offsetof(DeviceRoutes, is_far) == 16);
inline constexpr std::uintptr_t kDeviceRoutesAddress =
    kDeviceTableAddress + kDeviceObjects * (sizeof(DeviceEntry) + std::size_t{kMaxContextBytes});

// The process's table. Thread contract: the control plane calls; kernels read while their object exists.
class MF_API DeviceTable {
public:
    // Maps the table if that has not been done. MallocFailed when something else is at its address.
    static Status open();
    static void enter(std::uint32_t id, const DeviceEntry& entry, std::span<const std::uint32_t> far_ranks);
    static Status set_context(std::uint32_t id, const void* context, std::uint32_t size_bytes);
    static void remove(std::uint32_t id);
    static void remove_all();  // in a forked child
    static void make_fork_handlers();
};

}  // namespace memfabric
