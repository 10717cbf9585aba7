// SPDX-License-Identifier: Apache-2.0
#include "tcp/server_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/blocked_signals.h"
#include "base/fork_guard.h"
#include "base/last_error.h"
#include "tcp/socket.h"

namespace memfabric::tcp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWakeUp = -1;

}  // namespace

Status ServerThread::start(std::atomic<std::size_t>& all_connections, std::unique_ptr<ServerThread>& started) {
    std::unique_ptr<ServerThread> made(new ServerThread(all_connections));
    made->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    made->wake_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = kWakeUp;
    if (!made->epoll_ || !made->wake_fd_ ||
        epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, made->wake_fd_.get(), &event) != 0) {
        return fail(Status::NoResources, "data connections cannot be watched: %s; raise the limit of open files",
                    std::strerror(errno));
    }
    try {
        const BlockedSignals blocked;
        made->thread_ = std::thread([raw = made.get()] { raw->serve(); });
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "no thread to serve data connections: %s", error.what());
    }
    started = std::move(made);
    return Status::Ok;
}

ServerThread::~ServerThread() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        inbox_.stopping = true;
    }
    wake();
    thread_.join();
    count(0 - connections());
}

void ServerThread::hold() {
    working_.lock();
    mutex_.lock();
}

void ServerThread::let_go() {
    mutex_.unlock();
    working_.unlock();
}

void ServerThread::abandon_in_child() {
    ForkGuard::abandon(thread_);
    count(0 - connections());
    connections_.clear();
    inbox_ = {};
    let_go();
}

void ServerThread::wake() { eventfd_write(wake_fd_.get(), 1); }

void ServerThread::adopt(std::unique_ptr<ServerConnection> connection) {
    count(1);
    {
        const std::lock_guard lock(mutex_);
        inbox_.adopted.push_back(std::move(connection));
    }
    wake();
}

void ServerThread::drop(std::shared_ptr<const Exposure> exposure) {
    {
        const std::lock_guard lock(mutex_);
        inbox_.dropped.push_back(std::move(exposure));
    }
    wake();
}

void ServerThread::serve() {
    pthread_setname_np(pthread_self(), "mf-data");
    auto last_request = Clock::now();
    for (;;) {
        const bool may_sleep = ready_.empty() && Clock::now() - last_request > kSpin;
        if (!look(may_sleep)) return;
        if (ready_.empty()) continue;
        run_ready();
        last_request = Clock::now();
    }
}

// What the sockets have to say. False: it is over.
bool ServerThread::look(bool may_sleep) {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), may_sleep ? -1 : 0);
    const std::lock_guard lock(working_);
    for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == kWakeUp) {
            if (!read_inbox()) return false;
        } else if (connections_.contains(fd) && std::ranges::find(ready_, fd) == ready_.end()) {
            ready_.push_back(fd);
        }
    }
    return true;
}

bool ServerThread::read_inbox() {
    eventfd_t wakeups;
    eventfd_read(wake_fd_.get(), &wakeups);
    Inbox inbox;
    {
        const std::lock_guard lock(mutex_);
        inbox = std::exchange(inbox_, {});
    }
    for (auto& connection : inbox.adopted) {
        const int fd = connection->fd();
        connections_.emplace(fd, std::move(connection));
        // Edge-triggered: told once whenever there is something new, which `advance` then does to its end.
        epoll_event event{};
        event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
        event.data.fd = fd;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) end(fd);
    }
    for (const auto& exposure : inbox.dropped) {
        std::vector<int> gone;
        for (const auto& [fd, connection] : connections_) {
            if (connection->exposure() == exposure.get()) gone.push_back(fd);
        }
        for (const int fd : gone) end(fd);
    }
    return !inbox.stopping;
}

// One turn for each.
void ServerThread::run_ready() {
    const std::lock_guard lock(working_);
    const std::vector<int> turns = std::exchange(ready_, {});
    for (const int fd : turns) {
        const auto found = connections_.find(fd);
        if (found == connections_.end()) continue;
        switch (found->second->advance()) {
            case ServerConnection::Progress::Blocked:
                break;
            case ServerConnection::Progress::Over:
                ready_.push_back(fd);
                break;
            case ServerConnection::Progress::End:
                end(fd);
                break;
        }
    }
}

// A negative change is the number that has the same effect.
void ServerThread::count(std::size_t change) {
    connection_count_.fetch_add(change, std::memory_order_relaxed);
    all_connections_.fetch_add(change, std::memory_order_seq_cst);
}

void ServerThread::end(int fd) {
    std::erase(ready_, fd);
    connections_.erase(fd);
    count(0 - std::size_t{1});
}

}  // namespace memfabric::tcp
