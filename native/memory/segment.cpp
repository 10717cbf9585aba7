// SPDX-License-Identifier: Apache-2.0
#include "memory/segment.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstring>
#include <fstream>
#include <string>

#include "base/last_error.h"
#include "base/owned_fd.h"
#include "memory/machine_memory.h"

namespace memfabric {
namespace {

constexpr int kMaxNodes = 1024;

class Mapping {
public:
    Mapping(int fd, std::uint64_t size_bytes)
        : address_(mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)), size_bytes_(size_bytes) {}
    ~Mapping() {
        if (ok()) munmap(address_, size_bytes_);
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    bool ok() const { return address_ != MAP_FAILED; }
    void* address() const { return address_; }

private:
    void* address_;
    std::uint64_t size_bytes_;
};

std::uint64_t number_in(const char* path) {
    std::uint64_t number = 0;
    std::ifstream(path) >> number;
    return number;
}

bool huge_pages_free(std::uint64_t size_bytes) {
    const std::uint64_t free_pages = number_in("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    const std::uint64_t promised_pages = number_in("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");
    return free_pages >= promised_pages && free_pages - promised_pages >= size_bytes / kHugePageBytes;
}

// The policy is the file's, not the mapping's, so it also holds for whoever maps the segment later.
Status place_on_node(const SegmentRequest& request, const Mapping& mapping) {
    if (request.numa_node < 0) return Status::Ok;
    if (request.numa_node >= kMaxNodes) {
        return fail(Status::InvalidParam, "NUMA node %d does not exist, nodes are 0 to %d", request.numa_node,
                    kMaxNodes - 1);
    }
    constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
    std::array<unsigned long, kMaxNodes / kBits> nodes{};
    const auto node = static_cast<std::size_t>(request.numa_node);
    nodes[node / kBits] = 1UL << (node % kBits);
    const int policy = request.numa_strict ? MPOL_BIND : MPOL_PREFERRED;
    const long result =
        syscall(SYS_mbind, mapping.address(), request.size_bytes, policy, nodes.data(), kMaxNodes + 1, 0);
    if (result == 0 || !request.numa_strict) return Status::Ok;
    return fail(errno == EINVAL ? Status::InvalidParam : Status::NoResources,
                "cannot place %" PRIu64
                " bytes on NUMA node %d: %s; check /sys/devices/system/node/online and whether the "
                "container forbids mbind",
                request.size_bytes, request.numa_node, std::strerror(errno));
}

// Hardened kernels insist on memory that cannot be executed (vm.memfd_noexec), old ones do not know the flag.
int open_memfd(unsigned flags) {
    constexpr unsigned kNeverExecutable = 8;  // MFD_NOEXEC_SEAL, which older headers lack
    const int fd = memfd_create("memfabric", flags | kNeverExecutable);
    return fd < 0 && errno == EINVAL ? memfd_create("memfabric", flags) : fd;
}

// A huge-page segment is mapped once, which makes the kernel set the pages aside.
Status make(const SegmentRequest& request, bool huge, Segment& segment) {
    OwnedFd fd(open_memfd(MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0U)));
    if (fd.get() < 0 && (errno == EMFILE || errno == ENFILE)) {
        return fail(Status::NoResources,
                    "cannot create a memory segment of %" PRIu64
                    " bytes: %s; raise the limit of open files (ulimit -n)",
                    request.size_bytes, std::strerror(errno));
    }
    if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(request.size_bytes)) != 0 ||
        fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail(Status::MallocFailed, "cannot create a memory segment of %" PRIu64 " bytes: %s", request.size_bytes,
                    std::strerror(errno));
    }
    if (huge || request.numa_node >= 0) {
        const Mapping mapping(fd.get(), request.size_bytes);
        if (!mapping.ok()) {
            return fail(Status::MallocFailed, "cannot map a memory segment of %" PRIu64 " bytes: %s",
                        request.size_bytes, std::strerror(errno));
        }
        if (const Status status = place_on_node(request, mapping); status != Status::Ok) return status;
    }
    segment.fd = fd.release();
    segment.page_bytes = huge ? kHugePageBytes : static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return Status::Ok;
}

}  // namespace

Status create_segment(const SegmentRequest& request, Segment& segment) {
    if (request.size_bytes == 0 || request.size_bytes % kHugePageBytes != 0) {
        return fail(Status::InvalidParam,
                    "a memory segment of %" PRIu64 " bytes: it must be a multiple of %" PRIu64 ", not 0",
                    request.size_bytes, kHugePageBytes);
    }
    if (request.size_bytes > machine_bytes()) {
        return fail(Status::MallocFailed,
                    "a memory segment of %" PRIu64 " bytes is more than the %" PRIu64
                    " bytes of memory and swap of this machine",
                    request.size_bytes, machine_bytes());
    }
    if (request.want_huge_pages && huge_pages_free(request.size_bytes)) {
        const std::string before = last_error();
        if (make(request, true, segment) == Status::Ok) return Status::Ok;
        set_last_error(before);  // somebody else took the huge pages first: not a failure of this call
    }
    return make(request, false, segment);
}

}  // namespace memfabric
