// SPDX-License-Identifier: Apache-2.0
//
// A target of data connections that says what a test wants it to say, for what initiators have to bear.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/owned_fd.h"
#include "endpoint/frames.h"
#include "endpoint/instance_id.h"
#include "tcp/transport.h"
#include "tcp/wire.h"
#include "tests/assertions.h"

namespace memfabric::tests {

template <typename Frame>
std::string bytes_of(const Frame& frame) {
    return {reinterpret_cast<const char*>(&frame), sizeof frame};
}

// What a target that tells the truth answers to a request that it has carried out.
inline tcp::Reply honest_reply(const tcp::Request& request) {
    tcp::Reply reply;
    reply.sequence = request.sequence;
    reply.payload_bytes = request.operation == tcp::Operation::Read ? request.payload_bytes : 0;
    reply.moved_bytes = request.operation == tcp::Operation::Write ? request.payload_bytes : 0;
    return reply;
}

// An initiator, as the target sees it. What cannot be received is the end of the conversation.
class Caller {
public:
    explicit Caller(int fd) : fd_(fd) {}

    bool let_in() { return hear_greeting() && say(encode(Connected{1})); }
    bool hear_greeting() {
        std::string greeting(encode(Connect{}).size(), '\0');
        return receive(greeting.data(), greeting.size());
    }
    bool hear(tcp::Request& request) {
        if (!receive(&request, sizeof request) || !tcp::is_well_formed(request)) return false;
        std::vector<tcp::RemotePiece> further(request.piece_count - 1);
        return receive(further.data(), further.size() * sizeof(tcp::RemotePiece));
    }
    bool hear_payload(const tcp::Request& request) {
        if (request.operation != tcp::Operation::Write) return true;
        std::string payload(request.payload_bytes, '\0');
        return receive(payload.data(), payload.size());
    }
    bool say(std::string_view bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }

private:
    bool receive(void* place, std::size_t size_bytes) {
        return size_bytes == 0 || recv(fd_, place, size_bytes, MSG_WAITALL) == static_cast<ssize_t>(size_bytes);
    }

    const int fd_;
};

// One connection at a time, on a thread of its own. Transports to it are destroyed before it is.
class LyingTarget {
public:
    // Called for each connection; it ends when this returns.
    using Conversation = std::function<void(Caller&)>;

    // `patience` with an initiator that says nothing, and what it is sent though nobody reads; 0: no limit.
    explicit LyingTarget(Conversation conversation, timeval patience = {}, int buffer_bytes = 0)
        : conversation_(std::move(conversation)) {
        listening_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (buffer_bytes != 0) setsockopt(listening_.get(), SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        require(bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        require(listen(listening_.get(), 16) == 0);
        socklen_t address_bytes = sizeof address;
        require(getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes) == 0);
        fill_random(connect_.target);
        require_ok(tcp::Target::make({"127.0.0.1", ntohs(address.sin_port)}, connect_, nullptr, target_));
        thread_ = std::thread([this, patience] { serve(patience); });
    }
    ~LyingTarget() {
        shutdown(listening_.get(), SHUT_RDWR);
        thread_.join();
    }
    LyingTarget(const LyingTarget&) = delete;
    LyingTarget& operator=(const LyingTarget&) = delete;

    const tcp::Target& address() const { return target_; }

private:
    void serve(timeval patience) {
        for (;;) {
            const OwnedFd fd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!fd) return;
            setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
            setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
            Caller caller(fd.get());
            conversation_(caller);
        }
    }

    const Conversation conversation_;
    OwnedFd listening_;
    Connect connect_{};
    tcp::Target target_;
    std::thread thread_;  // last: it uses everything above
};

}  // namespace memfabric::tests
