// SPDX-License-Identifier: Apache-2.0
//
// One connection's TLS: what goes in is encrypted and sent, what comes out was received and decrypted. Never waits.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/api.h"
#include "tls/abi.h"
#include "tls/context.h"
#include "tls/socket_bio.h"

namespace memfabric::tls {

enum class Role : std::uint8_t { Client, Server };
enum class Handshake : std::uint8_t { Done, Blocked, Failed };

// Thread contract: one thread at a time. The socket is the caller's, and outlives it.
class MF_API Stream {
public:
    // Nothing: there is no memory.
    static std::unique_ptr<Stream> open(std::shared_ptr<const Context> context, int fd, Role role);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // To be repeated when the socket has news. What a client finds Done may still be refused by the server: its first
    // `read` tells.
    Handshake shake_hands();
    bool is_ready() const { return ready_; }
    bool wants_room() const { return wants_room_; }  // the socket must take bytes before anything goes on

    // As recv: how many bytes; 0: the end; -1: errno says why. EPROTO: `failure` says more.
    ssize_t read(void* bytes, std::size_t size_bytes);
    // As send, but all of it or nothing. EAGAIN: it has been encrypted and is not all sent; then the same bytes, and
    // perhaps others behind them, are written again until the answer is how many they were.
    ssize_t write(const void* bytes, std::size_t size_bytes);
    std::size_t unsent_bytes() const { return unsent_bytes_; }  // of such a write
    bool has_unread() const;                                    // something has been received and not been read

    const std::string& failure() const { return failure_; }

private:
    Stream(std::shared_ptr<const Context> context, int fd);
    ssize_t explain(int result);
    bool flush();

    const std::shared_ptr<const Context> context_;
    BioSocket socket_;
    abi::Session* session_ = nullptr;
    bool ready_ = false;
    bool wants_room_ = false;
    std::size_t unsent_bytes_ = 0;
    std::string failure_;
};

}  // namespace memfabric::tls
