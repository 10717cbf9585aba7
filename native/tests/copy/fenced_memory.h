// SPDX-License-Identifier: Apache-2.0
//
// Memory between two inaccessible pages: a copy that reads or writes one byte beyond either end crashes the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <span>

namespace memfabric::tests {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;

class FencedMemory {
public:
    // `size_bytes` is rounded up to whole pages.
    explicit FencedMemory(std::size_t size_bytes)
        : page_bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
          size_bytes_((size_bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_) {
        mapping_ = mmap(nullptr, mapping_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapping_ == MAP_FAILED) throw std::bad_alloc();
        if (mprotect(begin(), size_bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    }
    ~FencedMemory() { munmap(mapping_, mapping_bytes()); }
    FencedMemory(const FencedMemory&) = delete;
    FencedMemory& operator=(const FencedMemory&) = delete;

    std::byte* begin() const { return static_cast<std::byte*>(mapping_) + page_bytes_; }
    std::byte* end() const { return begin() + size_bytes_; }
    std::span<std::byte> bytes() const { return {begin(), size_bytes_}; }

private:
    std::size_t mapping_bytes() const { return size_bytes_ + 2 * page_bytes_; }

    std::size_t page_bytes_;
    std::size_t size_bytes_;
    void* mapping_;
};

}  // namespace memfabric::tests
