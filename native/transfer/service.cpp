// SPDX-License-Identifier: Apache-2.0
#include "transfer/service.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "base/blocked_signals.h"
#include "base/last_error.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kGreetingTime = std::chrono::seconds(3);  // from the first byte to the last
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kLookPause = std::chrono::milliseconds(10);  // between looks at a process without a link
constexpr std::size_t kMostStrangers = 256;                 // connections that have not shown who they are

}  // namespace

Status SessionService::start(const SessionOffer& offer, OwnedFd tcp_listener, std::shared_ptr<PeerFailures> failures,
                             std::unique_ptr<SessionService>& started) {
    std::unique_ptr<SessionService> service(new SessionService(offer, std::move(tcp_listener), std::move(failures)));
    if (const Status status = service->open(); status != Status::Ok) return status;
    try {
        const BlockedSignals blocked;
        service->thread_ = std::thread([raw = service.get()] { raw->serve(); });
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "session %s cannot start its thread: %s", offer.session.c_str(), error.what());
    }
    started = std::move(service);
    return Status::Ok;
}

SessionService::SessionService(const SessionOffer& offer, OwnedFd tcp_listener, std::shared_ptr<PeerFailures> failures)
    : offer_(offer),
      unix_name_("memfabric-transfer-" + hexadecimal(offer.instance)),
      failures_(std::move(failures)),
      tcp_listener_(std::move(tcp_listener)) {}

// In a forked child only the descriptors go: closing the parent's copies there must not end its connections, and the
// thread is not here.
SessionService::~SessionService() {
    if (fork_guard_.in_forked_child()) {
        ForkGuard::abandon(thread_);
        return;
    }
    stop();
}

void SessionService::stop() {
    const std::lock_guard joining(joining_);
    stopping_.store(true);
    if (wake_fd_) eventfd_write(wake_fd_.get(), 1);
    if (thread_.joinable()) thread_.join();
    offer_.segments->notify_when_crowded(-1);
    const std::lock_guard lock(mutex_);
    for (auto& [fd, connection] : connections_) {
        if (connection.initiator != nullptr) connection.initiator->gone.store(true);
        if (connection.peer != nullptr) connection.peer->gone.store(true);
        if (connection.initiator != nullptr) offer_.segments->dismiss(fd);
    }
    for (const auto& initiator : unlinked_) initiator->gone.store(true);
    unlinked_.clear();
    connections_.clear();
    tcp_listener_.reset();
    unix_listener_.reset();
}

Status SessionService::open() {
    if (const Status status = listen_abstract(unix_name_, unix_listener_); status != Status::Ok) return status;
    wake_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!wake_fd_ || !epoll_ || !add(tcp_listener_.get(), Connection(Kind::TcpListener)) ||
        !add(unix_listener_.get(), Connection(Kind::UnixListener)) || !add(wake_fd_.get(), Connection(Kind::WakeUp))) {
        return fail(Status::NoResources, "session %s cannot watch its sockets: %s", offer_.session.c_str(),
                    std::strerror(errno));
    }
    offer_.segments->notify_when_crowded(wake_fd_.get());
    return Status::Ok;
}

void SessionService::serve() {
    pthread_setname_np(pthread_self(), "mf-session");
    std::array<epoll_event, 64> events;
    bool waiting = false;  // for time to pass
    while (!stopping_.load()) {
        const int timeout_ms = waiting ? static_cast<int>(kTick / std::chrono::milliseconds(1)) : -1;
        const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
        const std::lock_guard lock(mutex_);
        for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.fd);
        waiting = tick();
    }
}

bool SessionService::listen_to(int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

bool SessionService::add(int fd, Connection connection) {
    if (!listen_to(EPOLL_CTL_ADD, fd, EPOLLIN)) return false;
    connections_.insert_or_assign(fd, std::move(connection));
    return true;
}

// The connection ended, by whichever side.
void SessionService::drop(int fd) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    Connection connection = std::move(found->second);
    connections_.erase(found);
    if (connection.initiator != nullptr) {
        offer_.segments->dismiss(fd);
        remember(connection.initiator);
        failures_->report(connection.initiator->session, connection.initiator->instance);
    }
    if (connection.peer != nullptr) {
        connection.peer->hang_up();
        departed_.push_back(connection.peer);
        failures_->report(connection.peer->session, connection.peer->instance);
    }
}

// Most links end with their process; one can also end alone, while a transfer of that process is inside our memory.
void SessionService::remember(const std::shared_ptr<Initiator>& initiator) {
    initiator->linked.store(false, std::memory_order_release);
    std::erase_if(unlinked_, [&](const std::shared_ptr<Initiator>& known) {
        return known->page.is_page_of(initiator->page) || !known->page.is_mapped_by(known->pid);
    });
    if (initiator->pid > 0 && initiator->page.is_mapped_by(initiator->pid)) {
        unlinked_.push_back(initiator);
    } else {
        initiator->gone.store(true, std::memory_order_release);
    }
}

void SessionService::handle(int fd) {
    const auto found = connections_.find(fd);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    switch (connection.kind) {
        case Kind::WakeUp: {
            eventfd_t wakeups;
            eventfd_read(fd, &wakeups);
            return;
        }
        case Kind::TcpListener:
        case Kind::UnixListener:
            return accept_all(fd, connection.kind == Kind::TcpListener ? Kind::Greeting : Kind::Attaching);
        case Kind::Greeting:
            return hear_greeting(fd, connection);
        case Kind::Attaching:
            return hear_attach(fd, connection);
        case Kind::Initiator:
            return hear_initiator(fd);
        case Kind::Target:
            if (!connection.peer->hear()) drop(fd);
            return;
    }
}

void SessionService::accept_all(int listener, Kind kind) {
    for (;;) {
        OwnedFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd) {
            if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
            listen_for_greetings(0);
            paused_ = true;
            paused_until_ = Clock::now() + kTick;
            return;
        }
        make_room();
        const int number = fd.get();
        Connection connection(kind);
        connection.fd = std::move(fd);
        connection.deadline = Clock::now() + kGreetingTime;
        add(number, std::move(connection));
    }
}

// A crowd that never says anything must not keep others out: the oldest stranger goes.
void SessionService::make_room() {
    std::size_t strangers = 0;
    int oldest = -1;
    Deadline earliest = Deadline::max();
    for (const auto& [fd, connection] : connections_) {
        if (connection.deadline == Deadline::max()) continue;
        ++strangers;
        if (connection.deadline < earliest) {
            earliest = connection.deadline;
            oldest = fd;
        }
    }
    if (strangers >= kMostStrangers) drop(oldest);
}

// True while something waits for time to pass.
bool SessionService::tick() {
    const Deadline now = Clock::now();
    std::vector<int> late;
    for (const auto& [fd, connection] : connections_) {
        if (connection.deadline <= now) late.push_back(fd);
    }
    for (const int fd : late) drop(fd);
    if (paused_ && paused_until_ <= now) {
        paused_ = false;
        listen_for_greetings(EPOLLIN);
    }
    std::erase_if(departed_, [](const std::shared_ptr<Peer>& peer) { return peer->segments.collect(); });
    if (retry_at_ <= now) {
        crowded_ = offer_.segments->retry();
        if (crowded_) retry_at_ = now + kTick;
    }
    bool waiting = crowded_ || paused_ || !departed_.empty();
    for (const auto& [fd, connection] : connections_) {
        if (connection.peer != nullptr && !connection.peer->segments.collect()) waiting = true;
        if (connection.deadline != Deadline::max()) waiting = true;
    }
    return waiting;
}

void SessionService::listen_for_greetings(std::uint32_t events) {
    for (const int listener : {tcp_listener_.get(), unix_listener_.get()}) listen_to(EPOLL_CTL_MOD, listener, events);
}

void SessionService::watch(std::shared_ptr<Peer> peer) {
    const std::lock_guard lock(mutex_);
    const int fd = peer->link.get();
    Connection connection(Kind::Target);
    connection.peer = peer;
    if (stopping_.load() || !add(fd, std::move(connection))) peer->gone.store(true, std::memory_order_release);
}

bool SessionService::wait_for_initiators(Deadline deadline, pid_t& late) {
    std::vector<std::shared_ptr<Initiator>> initiators;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [fd, connection] : connections_) {
            if (connection.initiator != nullptr) initiators.push_back(connection.initiator);
        }
        initiators.insert(initiators.end(), unlinked_.begin(), unlinked_.end());
    }
    for (const auto& initiator : initiators) {
        Deadline next_look = Clock::now();
        const auto is_gone = [&] {
            if (initiator->gone.load(std::memory_order_acquire)) return true;
            if (initiator->linked.load(std::memory_order_acquire) || Clock::now() < next_look) return false;
            next_look = Clock::now() + kLookPause;
            return !initiator->page.is_mapped_by(initiator->pid);
        };
        if (initiator->page.wait_until_moved_on(target_id(offer_.instance), deadline, is_gone)) continue;
        late = initiator->pid;
        return false;
    }
    return true;
}

// What strangers and initiators say to a session, and what they are answered. On the service's thread, with its lock
// held.
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
