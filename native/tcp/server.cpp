// SPDX-License-Identifier: Apache-2.0
#include "tcp/server.h"

#include <algorithm>
#include <utility>

#include "base/cpu.h"
#include "base/last_error.h"
#include "tcp/fence.h"
#include "tcp/socket.h"

namespace memfabric::tcp {
namespace {

constexpr std::size_t kMostThreads = 4;

// One for every two cores: the other one computes.
std::size_t threads_wanted() { return std::clamp<std::size_t>(usable_cores() / 2, 1, kMostThreads); }

bool is_equal(const Secret& one, const Secret& other) {  // takes as long for every other
    unsigned difference = 0;
    for (std::size_t i = 0; i < one.size(); ++i) difference |= static_cast<unsigned>(one[i] ^ other[i]);
    return difference == 0;
}

}  // namespace

Server& Server::process() {
    static Server& server = *new Server;
    return server;
}

void Server::expose(const InstanceId& id, const Secret& secret, std::shared_ptr<const Exposure> exposure) {
    const std::lock_guard lock(mutex_);
    exposed_[id] = {secret, std::move(exposure)};
}

void Server::withdraw(const InstanceId& id) {
    std::vector<std::unique_ptr<ServerThread>> idle;  // joined without the lock
    const std::lock_guard lock(mutex_);
    const auto found = exposed_.find(id);
    if (found == exposed_.end()) return;
    for (const auto& thread : threads_) thread->drop(found->second.exposure);
    exposed_.erase(found);
    if (exposed_.empty()) idle.swap(threads_);
}

void Server::admit(const Connect& connect, Endpoint& endpoint, Link& link) {
    const std::string refused_because = hand_over(connect, endpoint, link);
    if (refused_because.empty()) return;
    static_cast<void>(link.send(encode(Refused{refused_because})));
    endpoint.drop(link);
}

// "", or why not.
std::string Server::hand_over(const Connect& connect, Endpoint& endpoint, Link& link) {
    const std::lock_guard lock(mutex_);
    const auto found = exposed_.find(connect.target);
    if (found == exposed_.end() || !is_equal(found->second.secret, connect.secret)) {
        return "the secret is not that of the memory it asks for; the session was restarted, or the object has gone";
    }
    if (link.has_unread()) return "it speaks before it was let in";
    RemoteDescriptors descriptors;
    if (RemoteDescriptors::take(Channel::most_descriptors(link.encrypted()), descriptors) != Status::Ok) {
        return take_last_error();
    }
    ServerThread* thread = nullptr;
    if (choose_thread(thread) != Status::Ok) return take_last_error();
    auto fence = std::make_unique<Fence>(found->second.exposure.get());
    if (link.send(encode(Connected{fence->number()})) != Sending::Sent) return "it does not listen";
    Channel channel(endpoint.release(link));
    if (!channel) return "";  // it has gone
    set_data_options(channel.fd());
    thread->adopt(std::make_unique<ServerConnection>(std::move(channel), std::move(descriptors), found->second.exposure,
                                                     std::move(fence)));
    return "";
}

// The least busy one; with the lock held.
Status Server::choose_thread(ServerThread*& chosen) {
    const auto least_busy = [this] {
        return std::ranges::min_element(threads_, {}, [](const auto& thread) { return thread->connections(); });
    };
    auto found = least_busy();
    if (threads_.size() < threads_wanted() && (found == threads_.end() || (*found)->connections() != 0)) {
        std::unique_ptr<ServerThread> thread;
        const Status status = ServerThread::start(connections_, thread);
        if (status == Status::Ok) {
            threads_.push_back(std::move(thread));
            found = threads_.end() - 1;
        } else if (threads_.empty()) {
            return status;
        }
    }
    chosen = found->get();
    return Status::Ok;
}

std::size_t Server::threads() const {
    const std::lock_guard lock(mutex_);
    return threads_.size();
}

void Server::before_fork() {
    mutex_.lock();
    for (const auto& thread : threads_) thread->hold();
    Fence::before_fork();
}

void Server::after_fork() {
    Fence::after_fork();
    for (const auto& thread : threads_) thread->let_go();
    mutex_.unlock();
}

// The parent serves its own. Their sockets must not stay open here: peers would not see them end.
void Server::begin_in_child() {
    Fence::after_fork();
    for (const auto& thread : threads_) thread->abandon_in_child();
    threads_.clear();
    exposed_.clear();
    mutex_.unlock();
}

}  // namespace memfabric::tcp
