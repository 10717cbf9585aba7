// SPDX-License-Identifier: Apache-2.0
#include "tcp/staging.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "base/last_error.h"

namespace memfabric::tcp {
namespace {

constexpr std::size_t kMostAtOnce = 64;  // pieces of one call: more of them are short, and few bytes

// The first pieces, of at most so many bytes: the last one is cut.
std::span<const iovec> first_of(const msghdr& message, std::size_t most_bytes, std::array<iovec, kMostAtOnce>& room) {
    std::size_t count = 0;
    for (; count < std::min(message.msg_iovlen, kMostAtOnce) && most_bytes != 0; ++count) {
        room[count] = message.msg_iov[count];
        room[count].iov_len = std::min(room[count].iov_len, most_bytes);
        most_bytes -= room[count].iov_len;
    }
    return {room.data(), count};
}

}  // namespace

bool Staging::make() {
    if (mapping_) return true;
    OwnedFd file;
    SharedMapping mapping;
    if (make_memory_file("memfabric-tls", kBytes, file) != Status::Ok ||
        SharedMapping::map(file.get(), kBytes, /*writable=*/true, mapping) != Status::Ok) {
        static_cast<void>(take_last_error());
        errno = ENOBUFS;
        return false;
    }
    file_ = std::move(file);
    mapping_ = std::move(mapping);
    return true;
}

ssize_t Staging::take(const msghdr& message) {
    std::array<iovec, kMostAtOnce> room;
    const std::span<const iovec> pieces = first_of(message, kBytes, room);
    return pwritev(file_.get(), pieces.data(), static_cast<int>(pieces.size()), 0);
}

ssize_t Staging::give(std::size_t begin, std::size_t end, const msghdr& message) {
    std::array<iovec, kMostAtOnce> room;
    const std::span<const iovec> pieces = first_of(message, end - begin, room);
    return preadv(file_.get(), pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(begin));
}

}  // namespace memfabric::tcp
