// SPDX-License-Identifier: Apache-2.0
//
// What a data connection's bytes go through: its socket as it is, or TLS on it. Calls are those of a socket that never
// waits, with the same answers either way.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "base/owned_fd.h"
#include "endpoint/link.h"
#include "tcp/staging.h"
#include "tls/stream.h"

namespace memfabric::tcp {

// Thread contract: one thread at a time.
class Channel {
public:
    Channel() = default;  // closed
    explicit Channel(Link::Socket socket) : fd_(std::move(socket.fd)), tls_(std::move(socket.tls)) {}

    // How many it may come to have: the socket, and with TLS the memory of both directions.
    static std::size_t most_descriptors(bool encrypted) { return encrypted ? 3 : 1; }
    explicit operator bool() const { return static_cast<bool>(fd_); }
    int fd() const { return fd_.get(); }
    void close();

    // EPROTO: `failure` says what TLS complains about.
    ssize_t send(const msghdr& message, int flags = 0) {
        if (tls_ != nullptr) [[unlikely]]
            return encrypt(message);
        return sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
    }
    ssize_t receive(msghdr& message) {
        if (tls_ != nullptr) [[unlikely]]
            return decrypt(message);
        return recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    }
    ssize_t send(const void* bytes, std::size_t size_bytes, int flags = 0);
    ssize_t receive(void* bytes, std::size_t size_bytes);
    ssize_t discard(std::size_t most_bytes);  // as receive, for nobody

    bool is_quiet() const;  // nothing has come, not even the end
    std::string failure() const { return tls_ == nullptr ? "" : tls_->failure(); }
    tls::Stream* tls() const { return tls_.get(); }  // nothing: it is not encrypted

private:
    ssize_t encrypt(const msghdr& message);
    ssize_t decrypt(msghdr& message);
    ssize_t fill();

    // The buffers of TLS, which a plain channel does not have.
    struct Buffers {
        Staging out;
        Staging in;
        std::size_t in_begin = 0;  // what was decrypted and nobody has
        std::size_t in_end = 0;
    };
    bool make_buffers();

    OwnedFd fd_;
    std::unique_ptr<tls::Stream> tls_;  // on fd_
    std::unique_ptr<Buffers> buffers_;
};

}  // namespace memfabric::tcp
