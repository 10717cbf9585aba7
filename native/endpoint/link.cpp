// SPDX-License-Identifier: Apache-2.0
#include "endpoint/link.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>

#include "endpoint/credentials.h"
#include "endpoint/frames.h"
#include "endpoint/keep_alive.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Link::Link(Kind kind, OwnedFd fd) : kind_(kind), id_(next_id()), fd_(std::move(fd)) {}

Link::~Link() = default;

Status Link::connect(const std::string& abstract_name, std::shared_ptr<Link>& connected) {
    OwnedFd fd;
    if (const Status status = connect_abstract(abstract_name, fd); status != Status::Ok) return status;
    connected = std::make_shared<Link>(Kind::Unix, std::move(fd));
    return Status::Ok;
}

// In a forked child whoever held it at the fork may not exist; nobody else is there either.
std::unique_lock<std::mutex> Link::locked() const {
    return fork_guard_.in_forked_child() ? std::unique_lock<std::mutex>() : std::unique_lock(mutex_);
}

bool Link::is_open() const { return number() >= 0; }

bool Link::peer(ucred& credentials) const {
    const auto lock = locked();
    return kind_ == Kind::Unix && fd_ && peer_of(fd_.get(), credentials);
}

bool Link::peer(SessionAddress& address) const {
    const auto lock = locked();
    return kind_ == Kind::Tcp && fd_ && SessionAddress::of_peer(fd_.get(), address);
}

Sending Link::send(const Bytes& bytes, std::span<const int> fds) {
    const auto lock = locked();
    if (!fd_) return Sending::Failed;
    if (kind_ == Kind::Unix) return send_packet(fd_.get(), bytes, fds);
    // A frame that the socket takes in part only could never be finished: frames are short, and there is one at a time.
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(bytes.size())) return Sending::Sent;
    return sent < 0 && (errno == EAGAIN || errno == EINTR) ? Sending::Full : Sending::Failed;
}

Status Link::send(const Bytes& bytes, std::span<const int> fds, Deadline deadline, Sending& outcome) {
    for (;;) {
        outcome = send(bytes, fds);
        if (outcome != Sending::Full) return Status::Ok;
        const int fd = number();
        if (fd < 0) continue;  // the next attempt says so
        // In slices: the link may be closed meanwhile, and the number be another descriptor's.
        const Status status = wait_for_socket(fd, POLLOUT, std::min(deadline, Clock::now() + kLook));
        if (status == Status::Interrupted) return status;
        if (Clock::now() >= deadline) return Status::Ok;
    }
}

bool Link::send_or_keep(const Bytes& bytes) {
    const auto lock = locked();
    kept_ += bytes;
    return flush_locked() != Sending::Failed;
}

Sending Link::flush() {
    const auto lock = locked();
    return flush_locked();
}

Sending Link::flush_locked() {
    if (!fd_) return Sending::Failed;
    if (kept_.empty()) return Sending::Sent;
    if (kind_ == Kind::Unix) {
        const Sending sending = send_packet(fd_.get(), kept_, {});
        if (sending == Sending::Sent) kept_.clear();
        return sending;
    }
    const ssize_t sent = ::send(fd_.get(), kept_.data(), kept_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR ? Sending::Full : Sending::Failed;
    kept_.erase(0, static_cast<std::size_t>(sent));
    return kept_.empty() ? Sending::Sent : Sending::Full;
}

Reception Link::receive(Packet& packet) {
    const auto lock = locked();
    if (!fd_) return Reception::End;
    return kind_ == Kind::Unix ? receive_packet(fd_.get(), packet) : receive_frame(packet);
}

Reception Link::receive_frame(Packet& packet) {
    packet = {};
    for (;;) {
        std::size_t frame_bytes = 0;
        switch (completeness(received_, frame_bytes)) {
            case Completeness::Malformed:
                return Reception::End;
            case Completeness::Complete:
                packet.bytes = received_.substr(0, frame_bytes);
                received_.erase(0, frame_bytes);
                return Reception::Packet;
            case Completeness::Incomplete:
                break;
        }
        std::array<char, 8192> buffer;
        const ssize_t got = recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Reception::Nothing;
        if (got <= 0) return Reception::End;
        received_.append(buffer.data(), static_cast<std::size_t>(got));
    }
}

bool Link::has_unread() const {
    const auto lock = locked();
    return !received_.empty();
}

Status Link::wait_for_news(Deadline deadline) const {
    int fd = -1;
    short events = POLLIN;
    {
        const auto lock = locked();
        fd = fd_.get();
        if (!kept_.empty()) events |= POLLOUT;
    }
    return fd < 0 ? Status::Ok : wait_for_socket(fd, events, deadline);
}

int Link::number() const {
    const auto lock = locked();
    return fd_.get();
}

void Link::keep_alive() {
    const auto lock = locked();
    if (fd_ && kind_ == Kind::Tcp) memfabric::keep_alive(fd_.get());
}

void Link::hang_up() {
    const auto lock = locked();
    if (fd_) shutdown(fd_.get(), SHUT_RDWR);
}

void Link::close() { static_cast<void>(release()); }

OwnedFd Link::release() {
    const auto lock = locked();
    return std::exchange(fd_, OwnedFd());
}

}  // namespace memfabric
