// SPDX-License-Identifier: Apache-2.0
#include "endpoint/link.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/notice.h"
#include "endpoint/credentials.h"
#include "endpoint/frames.h"
#include "endpoint/keep_alive.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr char kTlsHandshakeByte = 0x16;  // begins every TLS connection, and no frame
constexpr auto kSayPause = std::chrono::seconds(1);

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// At most one a second: whoever connects all day must not fill the log.
void say_refused(const std::string& address, const std::string& why) {
    static std::atomic<std::int64_t> said_at{INT64_MIN};
    const std::int64_t now = Clock::now().time_since_epoch().count();
    std::int64_t last = said_at.load(std::memory_order_relaxed);
    const auto pause = std::chrono::duration_cast<Clock::duration>(kSayPause).count();
    if (last != INT64_MIN && now - last < pause) return;
    if (!said_at.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
    notice("%s is not let in: %s", address.c_str(), why.c_str());
}

}  // namespace

Link::Link(Kind kind, OwnedFd fd, std::unique_ptr<tls::Stream> tls)
    : kind_(kind), id_(next_id()), fd_(std::move(fd)), tls_(std::move(tls)) {}

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

tls::Handshake Link::shake_hands() {
    const auto lock = locked();
    if (!fd_) return tls::Handshake::Failed;
    return tls_ == nullptr ? tls::Handshake::Done : tls_->shake_hands();
}

std::string Link::failure() const {
    const auto lock = locked();
    return tls_ == nullptr ? "" : tls_->failure();
}

// As recv and send.
ssize_t Link::take(char* bytes, std::size_t size_bytes) {
    return tls_ != nullptr ? tls_->read(bytes, size_bytes) : recv(fd_.get(), bytes, size_bytes, MSG_DONTWAIT);
}

ssize_t Link::put(const Bytes& bytes) {
    if (tls_ != nullptr) return tls_->write(bytes.data(), bytes.size());
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Sending Link::send(const Bytes& bytes, std::span<const int> fds) {
    const auto lock = locked();
    if (!fd_) return Sending::Failed;
    if (kind_ == Kind::Unix) return send_packet(fd_.get(), bytes, fds);
    // A frame that the socket takes in part only could never be finished: frames are short, and there is one at a time.
    // With TLS not even one of which nothing was taken: nobody knows that the same one will be tried again.
    const ssize_t sent = put(bytes);
    if (sent == static_cast<ssize_t>(bytes.size())) return Sending::Sent;
    return sent < 0 && (errno == EAGAIN || errno == EINTR) && tls_ == nullptr ? Sending::Full : Sending::Failed;
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
    const ssize_t sent = put(kept_);
    if (sent < 0) return errno == EAGAIN || errno == EINTR ? Sending::Full : Sending::Failed;
    kept_.erase(0, static_cast<std::size_t>(sent));
    return kept_.empty() ? Sending::Sent : Sending::Full;
}

Reception Link::receive(Packet& packet) {
    const auto lock = locked();
    if (!fd_) return Reception::End;
    if (kind_ == Kind::Unix) return receive_packet(fd_.get(), packet);
    if (refused_) return see_out();
    if (tls_ != nullptr && !tls_->is_ready()) {
        if (const Reception let_in_now = let_in(); let_in_now != Reception::Packet) return let_in_now;
    }
    return receive_frame(packet);
}

// Whoever connected to us begins the handshake. Packet: it is over, and there may be something to receive.
Reception Link::let_in() {
    char first = kTlsHandshakeByte;
    const ssize_t got = speaks_tls_ ? 1 : recv(fd_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Reception::Nothing;
    speaks_tls_ = first == kTlsHandshakeByte;
    if (!speaks_tls_) {
        const Bytes answer =
            encode(Refused{"it takes encrypted connections only; give this side certificates as well"});
        static_cast<void>(::send(fd_.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
        return refuse("it does not speak TLS, as this process does");
    }
    switch (tls_->shake_hands()) {
        case tls::Handshake::Done:
            return Reception::Packet;
        case tls::Handshake::Blocked:
            return Reception::Nothing;
        case tls::Handshake::Failed:
            break;
    }
    return refuse(tls_->failure());
}

// The other side must read why: a connection that is closed with bytes that nobody has read destroys them on their way.
Reception Link::refuse(const std::string& why) {
    SessionAddress address;
    SessionAddress::of_peer(fd_.get(), address);
    say_refused(address.text(), why);
    refused_ = true;
    shutdown(fd_.get(), SHUT_WR);
    return see_out();
}

Reception Link::see_out() {
    std::array<char, 8192> nobody_reads;
    for (;;) {
        const ssize_t got = recv(fd_.get(), nobody_reads.data(), nobody_reads.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Reception::Nothing;
        if (got <= 0) return Reception::End;
    }
}

Reception Link::receive_frame(Packet& packet) {
    packet = {};
    for (;;) {
        std::size_t frame_bytes = 0;
        switch (completeness(received_, frame_bytes)) {
            case Completeness::Malformed:
                if (received_.front() != kTlsHandshakeByte) return Reception::End;
                return refuse("it speaks TLS, and this process does not; both need it (set_conf_store_tls), or none");
            case Completeness::Complete:
                packet.bytes = received_.substr(0, frame_bytes);
                received_.erase(0, frame_bytes);
                return Reception::Packet;
            case Completeness::Incomplete:
                break;
        }
        std::array<char, 8192> buffer;
        const ssize_t got = take(buffer.data(), buffer.size());
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Reception::Nothing;
        if (got <= 0) return Reception::End;
        received_.append(buffer.data(), static_cast<std::size_t>(got));
    }
}

bool Link::has_unread() const {
    const auto lock = locked();
    return !received_.empty() || (tls_ != nullptr && tls_->has_unread());
}

Status Link::wait_for_news(Deadline deadline) const {
    int fd = -1;
    short events = POLLIN;
    {
        const auto lock = locked();
        fd = fd_.get();
        if (tls_ != nullptr && tls_->has_unread()) return Status::Ok;
        if (!kept_.empty() || (tls_ != nullptr && tls_->wants_room())) events |= POLLOUT;
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

Link::Socket Link::release() {
    const auto lock = locked();
    return {std::exchange(fd_, OwnedFd()), std::move(tls_)};
}

}  // namespace memfabric
