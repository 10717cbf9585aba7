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

Status Target::make(const SessionAddress& address, const Connect& connect, Target& made) {
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
    return Status::Ok;
}

Connection::Connection(const Target& target) : target_(target) {
    fd_.reset(socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd_) set_data_options(fd_.get());
    const auto* address = reinterpret_cast<const sockaddr*>(&target.address);
    if (!fd_ || (connect(fd_.get(), address, target.address_bytes) != 0 && errno != EINPROGRESS)) fail(errno);
}

bool Connection::advance() {
    switch (state_) {
        case State::Connecting:
            return finish_connecting();
        case State::Greeting:
            return hear_answer();
        default:
            return false;
    }
}

bool Connection::finish_connecting() {
    pollfd waited{fd_.get(), POLLOUT, 0};
    if (poll(&waited, 1, 0) == 0) return false;
    int error = 0;
    socklen_t error_bytes = sizeof error;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
    const Bytes greeting = encode(target_.connect);
    if (error == 0 && send(fd_.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
                          static_cast<ssize_t>(greeting.size())) {
        error = errno;
    }
    if (error != 0) {
        fail(error);
    } else {
        state_ = State::Greeting;
    }
    return true;
}

bool Connection::hear_answer() {
    std::array<char, 512> buffer;
    const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
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
    } else if (decode_connected(answer_)) {
        state_ = State::Ready;
        answer_.clear();
    } else {
        fail("gave no answer that this version understands");
    }
    return true;
}

// A byte that nobody waits for is as bad as an end.
bool Connection::is_quiet() const {
    char byte;
    return state_ == State::Ready && recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void Connection::end_sending() { shutdown(fd_.get(), SHUT_WR); }

void Connection::fail(const std::string& why) {
    state_ = State::Failed;
    failure_ = "the data connection to " + target_.name + " " + why;
    fd_.reset();
}

void Connection::fail(int error) {
    const bool was_ready = state_ == State::Ready;
    fail(std::string(was_ready ? "was lost: " : "cannot be made: ") + std::strerror(error));
}

}  // namespace memfabric::tcp
