// SPDX-License-Identifier: Apache-2.0
//
// Memory in pieces on its way through a socket: what one system call after the other has left of it.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace memfabric::tcp {

// Thread contract: one thread.
class Vectors {
public:
    void clear() {
        vectors_.clear();
        first_ = 0;
        left_bytes_ = 0;
    }
    void add(const void* address, std::size_t size_bytes) {
        if (size_bytes == 0) return;
        vectors_.push_back({const_cast<void*>(address), size_bytes});
        left_bytes_ += size_bytes;
    }

    std::size_t left_bytes() const { return left_bytes_; }
    std::size_t passed() const { return first_; }  // vectors that are behind us

    // For one system call: at most as many vectors as it takes, and about so many bytes.
    msghdr next(std::size_t most_bytes) {
        std::size_t count = 0;
        for (std::size_t bytes = 0; count < kMostVectors && first_ + count < vectors_.size() && bytes < most_bytes;) {
            bytes += vectors_[first_ + count++].iov_len;
        }
        msghdr message{};
        message.msg_iov = vectors_.data() + first_;
        message.msg_iovlen = count;
        return message;
    }

    void advance(std::size_t size_bytes) {
        left_bytes_ -= size_bytes;
        while (size_bytes != 0) {
            iovec& vector = vectors_[first_];
            const std::size_t taken_bytes = std::min(size_bytes, vector.iov_len);
            vector.iov_base = static_cast<std::byte*>(vector.iov_base) + taken_bytes;
            vector.iov_len -= taken_bytes;
            size_bytes -= taken_bytes;
            if (vector.iov_len == 0) ++first_;
        }
    }

private:
    static constexpr std::size_t kMostVectors = 1024;  // IOV_MAX

    std::vector<iovec> vectors_;
    std::size_t first_ = 0;
    std::size_t left_bytes_ = 0;
};

}  // namespace memfabric::tcp
