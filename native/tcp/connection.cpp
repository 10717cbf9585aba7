// SPDX-License-Identifier: Apache-2.0
#include "tcp/connection.h"

#include <netdb.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "base/last_error.h"
#include "tcp/socket.h"

namespace memfabric::tcp {

Status Target::make(const SessionAddress& address, const Connect& connect,
                    std::shared_ptr<const tls::Identity> identity, Target& made) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    const int failure = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
    if (failure != 0) {
        return memfabric::fail(Status::InvalidParam, "%s is no address that data can be sent to: %s",
                               address.text().c_str(), gai_strerror(failure));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(list, &freeaddrinfo);
    std::memcpy(&made.address, found->ai_addr, found->ai_addrlen);
    made.address_bytes = found->ai_addrlen;
    made.name = address.text();
    made.connect = connect;
    made.identity = std::move(identity);
    return Status::Ok;
}

Connection::Connection(const Target& target) : target_(target) {
    if (const int error = begin_connecting(); error != 0) fail(error);
}

// 0, or what is in the way.
int Connection::begin_connecting() {
    Link::Socket socket{OwnedFd(::socket(target_.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
                        {}};
    if (!socket.fd) return errno;
    set_data_options(socket.fd.get());
    forget_unsent(socket.fd.get());
    if (target_.identity != nullptr) {
        socket.tls = tls::Stream::open(target_.identity->context(), socket.fd.get(), tls::Role::Client);
        if (socket.tls == nullptr) return ENOMEM;
    }
    channel_ = Channel(std::move(socket));
    const auto* address = reinterpret_cast<const sockaddr*>(&target_.address);
    return connect(fd(), address, target_.address_bytes) == 0 || errno == EINPROGRESS ? 0 : errno;
}

short Connection::awaited() const {
    const bool sends = state_ == State::Connecting || (state_ == State::Securing && channel_.tls()->wants_room());
    return sends ? POLLOUT : POLLIN;
}

bool Connection::advance() {
    switch (state_) {
        case State::Connecting:
            return finish_connecting();
        case State::Securing:
            return secure();
        case State::Greeting:
            return hear_answer();
        default:
            return false;
    }
}

bool Connection::finish_connecting() {
    pollfd waited{fd(), POLLOUT, 0};
    if (poll(&waited, 1, 0) == 0) return false;
    int error = 0;
    socklen_t error_bytes = sizeof error;
    getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
    if (error != 0) {
        fail(error);
    } else if (channel_.tls() != nullptr) {
        state_ = State::Securing;
        secure();
    } else {
        greet();
    }
    return true;
}

bool Connection::secure() {
    switch (channel_.tls()->shake_hands()) {
        case tls::Handshake::Done:
            greet();
            return true;
        case tls::Handshake::Blocked:
            return false;
        case tls::Handshake::Failed:
            fail("cannot be made: " + channel_.failure());
            return true;
    }
    return false;
}

void Connection::greet() {
    const Bytes greeting = encode(target_.connect);
    if (channel_.send(greeting.data(), greeting.size()) != static_cast<ssize_t>(greeting.size())) return fail(errno);
    state_ = State::Greeting;
}

bool Connection::hear_answer() {
    std::array<char, 512> buffer;
    const ssize_t got = channel_.receive(buffer.data(), buffer.size());
    if (got < 0 && would_block()) return false;
    if (got <= 0) {
        fail(got == 0 ? ECONNRESET : errno);
        return true;
    }
    answer_.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t frame_bytes = 0;
    const Completeness completeness_now = completeness(answer_, frame_bytes);
    if (completeness_now == Completeness::Incomplete) return true;
    if (const std::optional<Refused> refused = decode_refused(answer_)) {
        fail("refused: " + refused->reason);
    } else if (const std::optional<Connected> connected = decode_connected(answer_)) {
        state_ = State::Ready;
        number_ = connected->number;
        answer_.clear();
    } else {
        fail("gave no answer that this version understands");
    }
    return true;
}

// A byte that nobody waits for is as bad as an end.
bool Connection::is_quiet() const { return state_ == State::Ready && channel_.is_quiet(); }

void Connection::end_sending() { shutdown(fd(), SHUT_WR); }

void Connection::fail(const std::string& why) {
    state_ = State::Failed;
    failure_ = "the data connection to " + target_.name + " " + why;
    channel_.close();
}

void Connection::fail(int error) {
    const std::string complaint = channel_.failure();  // of TLS
    fail((state_ == State::Ready ? "was lost: " : "cannot be made: ") +
         (complaint.empty() ? std::string(std::strerror(error)) : complaint));
}

}  // namespace memfabric::tcp
