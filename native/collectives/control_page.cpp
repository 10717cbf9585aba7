// SPDX-License-Identifier: Apache-2.0
#include "collectives/control_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "base/last_error.h"
#include "base/owned_fd.h"
#include "memory/memfd.h"

namespace memfabric {

struct ControlPage::Head {
    std::uint64_t magic;
    std::uint32_t rank_size;
    std::uint32_t ready;
    alignas(64) FutexWord departures;
    alignas(64) std::atomic<std::uint64_t> heap_used;
};

namespace {

constexpr std::uint64_t kMagic = 0x31656761506c7443;  // "CtlPage1"
constexpr std::uint64_t kMailboxBytes = kMaxGatherBytes;
constexpr std::uint64_t kHeadBytes = 256;

// Every rank can be in eight subgroups, whatever their shape.
constexpr std::uint32_t groups_of(std::uint32_t rank_size) { return 1 + 4 * rank_size + 12; }
constexpr std::uint64_t slots_of(std::uint32_t rank_size) { return 9 * std::uint64_t{rank_size} + 16; }
constexpr std::uint64_t block_bytes(std::uint64_t slots) { return slots * (sizeof(MemberSlot) + 2 * kMailboxBytes); }

constexpr std::uint64_t liveness_at() { return kHeadBytes; }
constexpr std::uint64_t groups_at(std::uint32_t rank_size) { return liveness_at() + rank_size * sizeof(RankLiveness); }
constexpr std::uint64_t heap_at(std::uint32_t rank_size) {
    return groups_at(rank_size) + groups_of(rank_size) * sizeof(GroupSlot);
}
constexpr std::uint64_t page_bytes(std::uint32_t rank_size) {
    return heap_at(rank_size) + block_bytes(slots_of(rank_size));
}

std::byte* map(int fd, std::uint64_t size_bytes) {
    void* start = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return start == MAP_FAILED ? nullptr : static_cast<std::byte*>(start);
}

}  // namespace

Status ControlPage::create(std::uint32_t rank_size, int& fd) {
    const std::uint64_t size_bytes = page_bytes(rank_size);
    fd = above_standard_streams(memfd_create("memfabric-control", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size_bytes)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        const Status status =
            fail(Status::MallocFailed, "cannot make a control page for %u ranks (%" PRIu64 " bytes): %s", rank_size,
                 size_bytes, std::strerror(errno));
        if (fd >= 0) ::close(fd);
        fd = -1;
        return status;
    }
    // Group slot 0 has the first block of the heap, and is ready before anybody maps the page: ranks come all at once.
    GroupSlot everybody{};
    everybody.state = GroupSlot::kReady;
    everybody.size = rank_size;
    everybody.slots_at = heap_at(rank_size);
    const Head head{kMagic, rank_size, 1, {}, {}};
    if (pwrite(fd, &everybody, sizeof everybody, static_cast<off_t>(groups_at(rank_size))) != sizeof everybody ||
        pwrite(fd, &head, sizeof head, 0) != sizeof head) {
        const Status status = fail(Status::MallocFailed, "cannot write a control page: %s", std::strerror(errno));
        ::close(fd);
        fd = -1;
        return status;
    }
    return Status::Ok;
}

Status ControlPage::open(int fd, std::uint32_t rank_size, std::shared_ptr<ControlPage>& opened) {
    struct stat status{};
    const std::uint64_t size_bytes = page_bytes(rank_size);
    if (!cannot_shrink(fd)) {  // whoever made it could take it away under our feet
        return fail(Status::InvalidParam, "the control page is a file that can still be cut; it is not one of ours");
    }
    if (fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) != size_bytes) {
        return fail(Status::InvalidParam, "the control page has %lld bytes, one for %u ranks has %" PRIu64,
                    static_cast<long long>(status.st_size), rank_size, size_bytes);
    }
    std::byte* start = map(fd, size_bytes);
    if (start == nullptr) {
        return fail(Status::MallocFailed, "cannot map a control page of %" PRIu64 " bytes: %s", size_bytes,
                    std::strerror(errno));
    }
    opened.reset(new ControlPage(start, size_bytes, rank_size));
    const GroupSlot& everybody = opened->group(0);
    if (opened->head().magic != kMagic || opened->head().rank_size != rank_size ||
        everybody.state.load(std::memory_order_acquire) != GroupSlot::kReady ||
        everybody.slots_at != heap_at(rank_size)) {
        opened.reset();
        return fail(Status::InvalidParam, "the file is no control page for %u ranks", rank_size);
    }
    return Status::Ok;
}

ControlPage::ControlPage(std::byte* start, std::uint64_t size_bytes, std::uint32_t rank_size)
    : start_(start),
      size_bytes_(size_bytes),
      rank_size_(rank_size),
      group_count_(groups_of(rank_size)),
      liveness_(reinterpret_cast<RankLiveness*>(start + liveness_at())),
      groups_(reinterpret_cast<GroupSlot*>(start + groups_at(rank_size))) {
    static_assert(sizeof(Head) <= kHeadBytes);
}

ControlPage::~ControlPage() { munmap(start_, size_bytes_); }

ControlPage::Head& ControlPage::head() const { return *reinterpret_cast<Head*>(start_); }

FutexWord& ControlPage::departures() const { return head().departures; }

std::byte* ControlPage::mailbox(const GroupSlot& group, std::uint32_t size, std::uint32_t slot,
                                std::uint32_t parity) const {
    return start_ + group.slots_at + size * sizeof(MemberSlot) + (2 * std::uint64_t{slot} + parity) * kMailboxBytes;
}

std::uint64_t ControlPage::take_heap(std::uint64_t slots) {
    const std::uint64_t before = head().heap_used.fetch_add(slots);
    return rank_size_ + before + slots <= slots_of(rank_size_) ? heap_at(rank_size_) + block_bytes(rank_size_ + before)
                                                               : 0;
}

GroupSlot* ControlPage::subgroup(const std::string& name, std::uint32_t size, bool& busy) {
    busy = false;
    for (std::uint32_t index = 1; index < group_count_; ++index) {
        GroupSlot& group = groups_[index];
        std::uint32_t state = group.state.load(std::memory_order_acquire);
        if (state == GroupSlot::kFree && group.state.compare_exchange_strong(state, GroupSlot::kClaimed)) {
            const std::uint64_t place = take_heap(size);
            group.size = size;
            group.slots_at = place;
            name.copy(group.name, kMaxSubgroupName);
            group.state.store(GroupSlot::kReady, std::memory_order_release);
            state = GroupSlot::kReady;
        }
        if (state == GroupSlot::kClaimed) {  // whoever makes it may be making ours
            busy = true;
            return nullptr;
        }
        if (name != group.name) continue;
        if (group.slots_at == 0) break;
        return &group;
    }
    static_cast<void>(
        fail(Status::NoResources,
             "no room for subgroup '%s' of %u ranks: an object of %u ranks has room for %u subgroups with "
             "%" PRIu64 " members together; use the names of existing ones again",
             name.c_str(), size, rank_size_, group_count_ - 1, slots_of(rank_size_) - rank_size_));
    return nullptr;
}

}  // namespace memfabric
