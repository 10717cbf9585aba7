// SPDX-License-Identifier: Apache-2.0
//
// A connection to one other process. Its end means that the other side is gone: the kernel closes the sockets of the
// dead.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/packets.h"
#include "tls/stream.h"

namespace memfabric {

// Thread contract: any thread. Only the calls with a deadline wait.
class MF_API Link {
public:
    // A Unix socket carries packets as they are, with descriptors; TCP carries frames, one behind the other.
    enum class Kind : std::uint8_t { Unix, Tcp };
    // What a link stands on; `tls`: its frames are encrypted.
    struct Socket {
        OwnedFd fd;
        std::unique_ptr<tls::Stream> tls;
    };

    Link(Kind kind, OwnedFd fd, std::unique_ptr<tls::Stream> tls = nullptr);
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    static Status connect(const std::string& abstract_name, std::shared_ptr<Link>& connected);

    Kind kind() const { return kind_; }
    bool encrypted() const { return tls_ != nullptr; }  // of a link that is not closed meanwhile
    std::uint64_t id() const { return id_; }            // no other link of this process has had it or will have it
    bool is_open() const;
    bool peer(ucred& credentials) const;       // false: it is no Unix socket, or closed
    bool peer(SessionAddress& address) const;  // false: it is no TCP socket, or closed

    // Before anything else is sent, by whoever has connected. The other side's is part of its `receive`.
    tls::Handshake shake_hands();
    std::string failure() const;  // of TLS, if that ended the link; ""

    Sending send(const Bytes& bytes, std::span<const int> fds = {});
    Status send(const Bytes& bytes, std::span<const int> fds, Deadline deadline, Sending& outcome);  // waits while Full
    // What the socket does not take now is kept, and goes when somebody calls `flush`; nothing else may be sent before.
    // False: the link has ended.
    bool send_or_keep(const Bytes& bytes);
    Sending flush();  // Sent: nothing is kept
    Reception receive(Packet& packet);
    bool has_unread() const;  // bytes that have arrived behind the last frame
    // Until there is something to receive, room for what is kept, or the end; Timeout. For links that nobody closes
    // meanwhile.
    Status wait_for_news(Deadline deadline) const;

    void keep_alive();  // its end comes also when the other host has vanished
    void hang_up();     // the other side sees an end, and so does `receive`; the descriptor stays
    void close();
    Socket release();  // as close; the socket is the caller's

private:
    friend class Endpoint;  // watches the descriptor

    Reception receive_frame(Packet& packet);
    Reception let_in();
    Reception refuse(const std::string& why);
    Reception see_out();
    ssize_t take(char* bytes, std::size_t size_bytes);
    ssize_t put(const Bytes& bytes);
    Sending flush_locked();
    int number() const;
    std::unique_lock<std::mutex> locked() const;

    const ForkGuard fork_guard_;
    const Kind kind_;
    const std::uint64_t id_;
    mutable std::mutex mutex_;  // held for moments; a closed descriptor's number is soon another's
    OwnedFd fd_;
    std::unique_ptr<tls::Stream> tls_;  // on fd_
    bool speaks_tls_ = false;           // whoever connected to us
    bool refused_ = false;              // nothing that comes counts any more
    Bytes received_;                    // of a frame that is not complete
    Bytes kept_;                        // what the socket has not taken yet: a packet, or the end of a frame
};

}  // namespace memfabric
