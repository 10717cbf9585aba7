// SPDX-License-Identifier: Apache-2.0
//
// What strangers and visitors say to a session, and what they are answered. On the service's thread, with its lock
// held.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "core/last_error.h"
#include "transfer/session_service.h"

namespace memfabric {

void SessionService::hear_caller(int fd, Connection& connection) {
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
        connection.answered = true;  // the caller hangs up; closing first could destroy the answer on its way
    }
}

void SessionService::hear_candidate(int fd, Connection& connection) {
    Packet packet;
    const Reception reception = receive_packet(fd, packet);
    if (reception == Reception::Nothing) return;
    ucred caller{};
    if (reception == Reception::End || !peer_of(fd, caller)) return drop(fd);
    const std::string reason = reason_to_refuse(packet, caller);
    auto visitor = std::make_shared<Visitor>();
    if (!reason.empty() || VisitorPage::map(packet.fds[0].get(), visitor->page) != Status::Ok) {
        static_cast<void>(send_packet(fd, encode(Refused{reason.empty() ? take_last_error() : reason}), {}));
        return drop(fd);
    }
    const Attach attach = *decode_attach(packet.bytes);
    visitor->pid = caller.pid;
    visitor->session = attach.visitor_session;
    visitor->instance = attach.visitor;
    // Known before it can see our registrations: see wait_for_visitors().
    connection.kind = Kind::Visitor;
    connection.deadline = Deadline::max();
    connection.visitor = std::move(visitor);
    // Edge-triggered: told once whenever the socket has room again for what is queued there.
    if (!listen_to(EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT | EPOLLET) ||
        !offer_.segments->admit(fd, offer_.instance, offer_.registrations_fd)) {
        drop(fd);
    }
}

// After the handshake a visitor has nothing to say: a word is as good as the end.
void SessionService::hear_visitor(int fd) {
    Packet packet;
    if (receive_packet(fd, packet) != Reception::Nothing) return drop(fd);
    offer_.segments->flush(fd);
}

// "" if there is none.
std::string SessionService::reason_to_refuse(const Packet& packet, const ucred& caller) const {
    if (!is_our_user(caller)) {
        return "its engine belongs to user " + std::to_string(geteuid()) +
               " and lets only that user and root in, not user " + std::to_string(caller.uid) +
               (caller.uid == geteuid()
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
