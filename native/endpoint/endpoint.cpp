// SPDX-License-Identifier: Apache-2.0
#include "endpoint/endpoint.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/last_error.h"
#include "base/notice.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostInTurn = 64;  // who is let in, before those who are there are heard
constexpr auto kChorePause = std::chrono::milliseconds(100);
constexpr std::uint64_t kWakeUp = 0;                              // links begin with 1 ...
constexpr std::uint64_t kFirstListener = std::uint64_t{1} << 63;  // ... and never get here

int timeout_ms(Deadline until, Deadline now) {
    if (until == Deadline::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

Status Endpoint::open(std::vector<Listener> listeners, Strangers strangers, std::shared_ptr<Endpoint>& opened) {
    std::shared_ptr<Endpoint> endpoint(new Endpoint(std::move(listeners), strangers));
    if (const Status status = endpoint->watch_listeners(); status != Status::Ok) return status;
    opened = std::move(endpoint);
    return Status::Ok;
}

Endpoint::Endpoint(std::vector<Listener> listeners, Strangers strangers)
    : strangers_(strangers), listeners_(std::move(listeners)) {}

Endpoint::~Endpoint() { close(); }

Status Endpoint::watch_listeners() {
    epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    wake_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    restore_spare();
    bool watched = epoll_ && wake_fd_ && spare_ && watch(EPOLL_CTL_ADD, wake_fd_.get(), EPOLLIN, kWakeUp);
    for (std::size_t i = 0; watched && i < listeners_.size(); ++i) {
        watched = watch(EPOLL_CTL_ADD, listeners_[i].fd.get(), EPOLLIN, kFirstListener + i);
    }
    return watched
               ? Status::Ok
               : fail(Status::NoResources, "sockets cannot be watched: %s; raise the limit of open files (ulimit -n)",
                      std::strerror(errno));
}

bool Endpoint::watch(int operation, int fd, std::uint32_t events, std::uint64_t id) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

void Endpoint::wait(Deadline until, News& news) {
    news = {};
    std::array<epoll_event, 64> events;
    for (;;) {
        Deadline now = Clock::now();
        Deadline next;
        {
            const std::lock_guard lock(mutex_);
            if (closed_) return;
            next = std::min(until, do_chores(now));
        }
        const int count =
            epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms(next, now));
        const std::lock_guard lock(mutex_);
        if (closed_) return;
        for (int i = 0; i < count; ++i) {
            const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
            if (id == kWakeUp) {
                eventfd_t wakeups;
                eventfd_read(wake_fd_.get(), &wakeups);
                news.woken = true;
            } else if (id >= kFirstListener) {
                accept_all(listeners_[id - kFirstListener], news);
            } else if (const auto found = links_.find(id); found != links_.end()) {
                news.links.push_back(found->second.link);
            }
        }
        if (news.woken || !news.links.empty() || Clock::now() >= until) return;
    }
}

void Endpoint::accept_all(const Listener& listener, News& news) {
    for (int accepted = 0; accepted < kMostInTurn; ++accepted) {  // the kernel tells of the others again
        OwnedFd fd = accept_one(listener);
        if (!fd) {
            if (is_shortage(errno)) pause_listening(errno);
            return;  // otherwise nobody is left, or whoever connected is gone already
        }
        make_room();
        const int number = fd.get();
        std::unique_ptr<tls::Stream> tls;
        if (listener.identity != nullptr) {
            tls = tls::Stream::open(listener.identity->context(), number, tls::Role::Server);
            if (tls == nullptr) continue;  // no memory: its peer sees an end
        }
        auto link = std::make_shared<Link>(listener.kind, std::move(fd), std::move(tls));
        if (!watch(EPOLL_CTL_ADD, number, EPOLLIN, link->id())) continue;
        const bool may_stay = strangers_.time == kEverybodyMayStay.time;
        news.links.push_back(link);
        const std::uint64_t id = link->id();
        links_.emplace(id, Entry{std::move(link), may_stay ? Deadline::max() : Clock::now() + strangers_.time});
    }
}

// Nothing and errno if that is impossible. If one descriptor is missing, the spare one makes way.
OwnedFd Endpoint::accept_one(const Listener& listener) {
    for (;;) {
        OwnedFd fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd || errno != EMFILE || !spare_) return fd;
        spare_.reset();
    }
}

void Endpoint::pause_listening(int error) {
    if (paused_) return;
    paused_ = true;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    notice("no other process is let in: %s; raise the limit of open files (ulimit -n, now %llu)", std::strerror(error),
           static_cast<unsigned long long>(limit.rlim_cur));
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
        watch(EPOLL_CTL_MOD, listeners_[i].fd.get(), 0, kFirstListener + i);
    }
}

// What waits for time to pass. Returns when it has to be done again.
Deadline Endpoint::do_chores(Deadline now) {
    drop_strangers(now);
    restore_spare();
    if (paused_ && spare_) listen_again();
    Deadline next = spare_ ? Deadline::max() : now + kChorePause;
    for (const auto& [id, entry] : links_) next = std::min(next, entry.stranger_until);
    return next;
}

void Endpoint::drop_strangers(Deadline now) {
    std::vector<std::shared_ptr<Link>> late;
    for (const auto& [id, entry] : links_) {
        if (entry.stranger_until <= now) late.push_back(entry.link);
    }
    for (const auto& link : late) drop_locked(*link);
}

// A crowd that never says anything must not keep others out.
void Endpoint::make_room() {
    std::size_t strangers = 0;
    const Entry* oldest = nullptr;
    for (const auto& [id, entry] : links_) {
        if (entry.stranger_until == Deadline::max()) continue;
        ++strangers;
        if (oldest == nullptr || entry.stranger_until < oldest->stranger_until) oldest = &entry;
    }
    if (strangers < strangers_.most || oldest == nullptr) return;
    const std::shared_ptr<Link> link = oldest->link;
    drop_locked(*link);
}

void Endpoint::restore_spare() {
    if (!spare_) spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Endpoint::listen_again() {
    paused_ = false;
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
        watch(EPOLL_CTL_MOD, listeners_[i].fd.get(), EPOLLIN, kFirstListener + i);
    }
}

bool Endpoint::add(std::shared_ptr<Link> link) {
    const std::lock_guard lock(mutex_);
    if (closed_ || !watch(EPOLL_CTL_ADD, link->number(), EPOLLIN, link->id())) return false;
    const std::uint64_t id = link->id();
    links_.emplace(id, Entry{std::move(link)});
    return true;
}

void Endpoint::trust(const Link& link) {
    const std::lock_guard lock(mutex_);
    const auto found = links_.find(link.id());
    if (found == links_.end()) return;
    found->second.stranger_until = Deadline::max();
    // Edge-triggered: told once whenever there is something new.
    watch(EPOLL_CTL_MOD, link.number(), EPOLLIN | EPOLLOUT | EPOLLET, link.id());
}

void Endpoint::mute(const Link& link) {
    const std::lock_guard lock(mutex_);
    if (links_.contains(link.id())) watch(EPOLL_CTL_MOD, link.number(), EPOLLRDHUP, link.id());
}

void Endpoint::unmute(const Link& link) {
    const std::lock_guard lock(mutex_);
    if (links_.contains(link.id())) watch(EPOLL_CTL_MOD, link.number(), EPOLLIN, link.id());
}

void Endpoint::drop(Link& link) {
    const std::lock_guard lock(mutex_);
    drop_locked(link);
}

// The link's number becomes the spare one's, if that is missing, before anybody else in this process can get it.
void Endpoint::drop_locked(Link& link) {
    OwnedFd fd = release_locked(link).fd;
    if (fd && !spare_ && dup3(wake_fd_.get(), fd.get(), O_CLOEXEC) >= 0) spare_ = std::move(fd);
}

Link::Socket Endpoint::release(Link& link) {
    const std::lock_guard lock(mutex_);
    return release_locked(link);
}

Link::Socket Endpoint::release_locked(Link& link) {
    const auto found = links_.find(link.id());
    if (found == links_.end()) return link.release();
    const std::shared_ptr<Link> kept = std::move(found->second.link);  // until here is the end of it
    links_.erase(found);
    Link::Socket socket = link.release();
    if (socket.fd) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.fd.get(), nullptr);
    return socket;
}

void Endpoint::wake() {
    const std::lock_guard lock(mutex_);
    if (!closed_) eventfd_write(wake_fd_.get(), 1);
}

// In a forked child without the lock, whose holder may not exist there, and without a word to the kernel: parent and
// child have the epoll in common.
void Endpoint::close() {
    const bool in_child = fork_guard_.in_forked_child();
    const auto lock = in_child ? std::unique_lock<std::mutex>() : std::unique_lock<std::mutex>(mutex_);
    closed_ = true;
    for (auto& [id, entry] : links_) entry.link->close();
    links_.clear();
    listeners_.clear();
    epoll_.reset();
    wake_fd_.reset();
    spare_.reset();
}

}  // namespace memfabric
