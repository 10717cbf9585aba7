// SPDX-License-Identifier: Apache-2.0
//
// What strangers and initiators say to a session, and what they are answered. On the service's thread, with its lock
// held.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/last_error.h"
#include "transfer/service.h"

namespace memfabric {

void SessionService::hear_greeting(int fd, Connection& connection) {
    std::array<char, 512> buffer;
    for (;;) {
        const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0 || connection.answered) return drop(fd);
        connection.received.append(buffer.data(), static_cast<std::size_t>(got));
        std::size_t frame_bytes = 0;
        switch (completeness(connection.received, frame_bytes)) {
            case Completeness::Incomplete:
                continue;
            case Completeness::Malformed:
                return drop(fd);
            case Completeness::Complete:
                break;
        }
        if (!decode_hello(connection.received)) return drop(fd);
        const Bytes answer = encode(Welcome{offer_.host, unix_name_, offer_.instance, offer_.secret});
        if (send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(answer.size())) {
            return drop(fd);
        }
        connection.answered = true;  // the peer hangs up; closing first could destroy the answer on its way
    }
}

void SessionService::hear_attach(int fd, Connection& connection) {
    Packet packet;
    const Reception reception = receive_packet(fd, packet);
    if (reception == Reception::Nothing) return;
    ucred credentials{};
    if (reception == Reception::End || !peer_of(fd, credentials)) return drop(fd);
    const std::string reason = reason_to_refuse(packet, credentials);
    auto initiator = std::make_shared<Initiator>();
    if (!reason.empty() || InitiatorEpochs::map(packet.fds[0].get(), initiator->page) != Status::Ok) {
        static_cast<void>(send_packet(fd, encode(Refused{reason.empty() ? take_last_error() : reason}), {}));
        return drop(fd);
    }
    const Attach attach = *decode_attach(packet.bytes);
    initiator->pid = credentials.pid;
    initiator->session = attach.initiator_session;
    initiator->instance = attach.initiator;
    // Known before it can see our registrations: see wait_for_initiators().
    connection.kind = Kind::Initiator;
    connection.deadline = Deadline::max();
    connection.initiator = std::move(initiator);
    // Edge-triggered: told once whenever the socket has room again for what is queued there.
    if (!listen_to(EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT | EPOLLET) ||
        !offer_.segments->admit(fd, offer_.instance, offer_.registrations_fd)) {
        drop(fd);
    }
}

// After the handshake an initiator has nothing to say: a word is as good as the end.
void SessionService::hear_initiator(int fd) {
    Packet packet;
    if (receive_packet(fd, packet) != Reception::Nothing) return drop(fd);
    offer_.segments->flush(fd);
}

// "" if there is none.
std::string SessionService::reason_to_refuse(const Packet& packet, const ucred& credentials) const {
    if (!is_our_user(credentials)) {
        return "its engine belongs to user " + std::to_string(geteuid()) +
               " and lets only that user and root in, not user " + std::to_string(credentials.uid) +
               (credentials.uid == geteuid()
                    ? ", which stands for all users whom this user namespace does not know; run both "
                      "as a user of their own"
                    : "; run both as the same user");
    }
    if (packet.fds_lost) return "its process has no descriptor left; raise its limit of open files (ulimit -n)";
    const std::optional<Attach> attach = decode_attach(packet.bytes);
    if (!attach || packet.fds.size() != 1) return "the request is malformed; both sides need the same version";
    if (attach->secret != offer_.secret) return "the secret is that of another engine; the session was restarted";
    return "";
}

}  // namespace memfabric
