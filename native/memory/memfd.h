// SPDX-License-Identifier: Apache-2.0
//
// Memory files that two processes map: making them, checking what a stranger sent, and mapping either.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/owned_fd.h"
#include "base/status.h"

namespace memfabric {

// A mapping with one owner, who unmaps it.
class SharedMapping {
public:
    SharedMapping() = default;
    ~SharedMapping() { reset(); }
    SharedMapping(SharedMapping&& other) noexcept;
    SharedMapping& operator=(SharedMapping&& other) noexcept;

    // Nothing is reserved: pages cost memory when they are touched.
    static Status map(int fd, std::uint64_t size_bytes, bool writable, SharedMapping& made);

    explicit operator bool() const { return address_ != nullptr; }
    std::byte* address() const { return address_; }
    std::uint64_t size_bytes() const { return size_bytes_; }
    void reset();
    void abandon();  // in a forked child: the kernel takes it away at the end

private:
    std::byte* address_ = nullptr;
    std::uint64_t size_bytes_ = 0;
};

// A new file of zeroes without a name, sealed against changes of its size.
Status make_memory_file(const char* name, std::uint64_t size_bytes, OwnedFd& made);

// No process can write to the file any more, except through mappings that exist already. `shown` is the descriptor to
// give away: the file's own, or a read-only one on kernels before 5.1.
Status forbid_writing(const OwnedFd& file, OwnedFd& shown);

// Whether the file is sealed so that a mapping of it can never be pulled away (SIGBUS).
bool cannot_shrink(int fd);

// A file that somebody else made: InvalidParam if it could shrink or is too small.
Status check_memory_file(int fd, std::uint64_t least_bytes);

}  // namespace memfabric
