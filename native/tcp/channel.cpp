// SPDX-License-Identifier: Apache-2.0
#include "tcp/channel.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace memfabric::tcp {
namespace {

msghdr message_of(iovec& piece) {
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return message;
}

}  // namespace

void Channel::close() {
    tls_.reset();
    buffers_.reset();
    fd_.reset();
}

ssize_t Channel::send(const void* bytes, std::size_t size_bytes, int flags) {
    iovec piece{const_cast<void*>(bytes), size_bytes};
    return send(message_of(piece), flags);
}

ssize_t Channel::receive(void* bytes, std::size_t size_bytes) {
    iovec piece{bytes, size_bytes};
    msghdr message = message_of(piece);
    return receive(message);
}

ssize_t Channel::discard(std::size_t most_bytes) {
    if (tls_ == nullptr) return recv(fd_.get(), nullptr, most_bytes, MSG_DONTWAIT | MSG_TRUNC);
    if (const ssize_t there = fill(); there <= 0) return there;
    const std::size_t dropped = std::min(most_bytes, buffers_->in_end - buffers_->in_begin);
    buffers_->in_begin += dropped;
    return static_cast<ssize_t>(dropped);
}

bool Channel::is_quiet() const {
    if (tls_ != nullptr && (tls_->has_unread() || (buffers_ != nullptr && buffers_->in_begin != buffers_->in_end))) {
        return false;
    }
    char byte;
    return recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

bool Channel::make_buffers() {
    if (buffers_ == nullptr) buffers_ = std::make_unique<Buffers>();
    return buffers_->out.make() && buffers_->in.make();
}

// What was encrypted and not sent goes first; that it is written again needs no bytes.
ssize_t Channel::encrypt(const msghdr& message) {
    if (!make_buffers()) return -1;
    auto staged = static_cast<ssize_t>(tls_->unsent_bytes());
    if (staged == 0) staged = buffers_->out.take(message);
    return staged <= 0 ? staged : tls_->write(buffers_->out.bytes(), static_cast<std::size_t>(staged));
}

ssize_t Channel::decrypt(msghdr& message) {
    if (const ssize_t there = fill(); there <= 0) return there;
    const ssize_t given = buffers_->in.give(buffers_->in_begin, buffers_->in_end, message);
    if (given > 0) buffers_->in_begin += static_cast<std::size_t>(given);
    return given;
}

// As many records as have come, unless some are left. Answers as a receive does.
ssize_t Channel::fill() {
    if (!make_buffers()) return -1;
    Buffers& buffers = *buffers_;
    if (buffers.in_begin != buffers.in_end) return 1;
    buffers.in_begin = buffers.in_end = 0;
    while (buffers.in_end < Staging::kBytes) {
        const ssize_t got = tls_->read(buffers.in.bytes() + buffers.in_end, Staging::kBytes - buffers.in_end);
        if (got <= 0) return buffers.in_end != 0 ? 1 : got;
        buffers.in_end += static_cast<std::size_t>(got);
    }
    return 1;
}

}  // namespace memfabric::tcp
