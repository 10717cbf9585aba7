// SPDX-License-Identifier: Apache-2.0
#include "collectives/device_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <mutex>

#include "base/fork_guard.h"
#include "base/last_error.h"
#include "collectives/device_copy.h"
#include "memory/layout.h"

namespace memfabric {
namespace {

constexpr std::size_t kEntriesBytes = 4096;
static_assert(kDeviceObjects * sizeof(DeviceEntry) == kEntriesBytes);
constexpr std::size_t kTableBytes = kDeviceRoutesAddress - kDeviceTableAddress + sizeof(DeviceRoutes);

static_assert(kDeviceTableAddress + kTableBytes <= kRegionStart, "the first object would find the table in its way");

// Whether the table is mapped; a forked child inherits it.
class Opening {
public:
    static Opening& process() {
        static Opening& opening = *new Opening;
        return opening;
    }
    std::mutex mutex;
    bool is_open = false;

private:
    friend void hold_across_forks<Opening>();
    Opening() { hold_across_forks<Opening>(); }
    void before_fork() { mutex.lock(); }
    void after_fork() { mutex.unlock(); }
    void begin_in_child() { mutex.unlock(); }
};

DeviceEntry& entry_of(std::uint32_t id) { return reinterpret_cast<DeviceEntry*>(kDeviceTableAddress)[id]; }

std::uintptr_t context_of(std::uint32_t id) {
    return kDeviceTableAddress + kEntriesBytes + std::uintptr_t{id} * kMaxContextBytes;
}

DeviceRoutes& routes() { return *reinterpret_cast<DeviceRoutes*>(kDeviceRoutesAddress); }

bool has_far_ranks(std::uint32_t id) {
    return std::ranges::any_of(routes().is_far[id], [](std::uint8_t is_far) { return is_far != 0; });
}

void set_present(std::uint32_t id, std::uint32_t present) {
    std::atomic_ref(entry_of(id).present).store(present, std::memory_order_release);
}

}  // namespace

Status DeviceTable::open() {
    Opening& opening = Opening::process();
    const std::lock_guard lock(opening.mutex);
    if (opening.is_open) return Status::Ok;
    void* const wanted = reinterpret_cast<void*>(kDeviceTableAddress);
    void* const got = mmap(wanted, kTableBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) {
        routes().copy_address = reinterpret_cast<std::uintptr_t>(&copy_for_kernel);
        opening.is_open = true;
        return Status::Ok;
    }
    const int error = errno;
    if (got != MAP_FAILED) munmap(got, kTableBytes);
    return fail(Status::MallocFailed, "the device table cannot be placed at 0x%" PRIxPTR ": %s", kDeviceTableAddress,
                std::strerror(got == MAP_FAILED ? error : EEXIST));
}

void DeviceTable::enter(std::uint32_t id, const DeviceEntry& entry, std::span<const std::uint32_t> far_ranks) {
    for (const std::uint32_t rank : far_ranks) routes().is_far[id][rank] = 1;
    if (!far_ranks.empty()) std::atomic_ref(routes().far_objects).fetch_add(1);
    DeviceEntry filled = entry;
    filled.present = 0;
    filled.context_bytes = 0;
    filled.context_address = context_of(id);
    entry_of(id) = filled;
    set_present(id, 1);
}

Status DeviceTable::set_context(std::uint32_t id, const void* context, std::uint32_t size_bytes) {
    if (size_bytes == 0 || size_bytes > kMaxContextBytes) {
        return fail(Status::InvalidParam, "shm object %u: a context of %u bytes, expected 1 to %u", id, size_bytes,
                    kMaxContextBytes);
    }
    std::memcpy(reinterpret_cast<void*>(context_of(id)), context, size_bytes);
    std::atomic_ref(entry_of(id).context_bytes).store(size_bytes, std::memory_order_release);
    return Status::Ok;
}

void DeviceTable::remove(std::uint32_t id) {
    set_present(id, 0);
    if (has_far_ranks(id)) {
        std::ranges::fill(routes().is_far[id], std::uint8_t{0});
        std::atomic_ref(routes().far_objects).fetch_sub(1);
    }
    madvise(reinterpret_cast<void*>(context_of(id)), kMaxContextBytes, MADV_DONTNEED);
}

void DeviceTable::make_fork_handlers() { static_cast<void>(Opening::process()); }

void DeviceTable::remove_all() {
    if (!Opening::process().is_open) return;
    for (std::uint32_t id = 0; id < kDeviceObjects; ++id) set_present(id, 0);
    routes().far_objects = 0;
    std::memset(routes().is_far, 0, sizeof routes().is_far);
}

}  // namespace memfabric
