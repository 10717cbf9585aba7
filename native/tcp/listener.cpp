// SPDX-License-Identifier: Apache-2.0
#include "tcp/listener.h"

#include <pthread.h>

#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/blocked_signals.h"
#include "base/last_error.h"
#include "endpoint/frames.h"
#include "tcp/server.h"

namespace memfabric::tcp {

Status Listener::open(const SessionAddress& address, std::uint16_t last_port,
                      std::shared_ptr<const tls::Identity> identity, std::unique_ptr<Listener>& opened) {
    std::unique_ptr<Listener> made(new Listener);
    OwnedFd fd;
    made->address_ = address;
    for (std::uint32_t port = address.port;; ++port) {
        made->address_.port = static_cast<std::uint16_t>(port);
        const Status status = listen_at(made->address_, fd);
        if (status == Status::Ok) break;
        if (status != Status::ResourceInUse || port >= last_port) return status;
    }
    made->address_.port = port_of(fd.get());
    std::vector<Endpoint::Listener> listeners;
    listeners.push_back({Link::Kind::Tcp, std::move(fd), std::move(identity)});
    const Status status = Endpoint::open(std::move(listeners), Endpoint::kMustSpeakSoon, made->endpoint_);
    if (status != Status::Ok) return status;
    try {
        const BlockedSignals blocked;
        made->thread_ = std::thread([raw = made.get()] { raw->serve(); });
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "no thread to let peers of other hosts in: %s", error.what());
    }
    opened = std::move(made);
    return Status::Ok;
}

Listener::~Listener() {
    if (endpoint_ == nullptr) return;
    if (fork_guard_.in_forked_child()) {
        ForkGuard::abandon(thread_);
        endpoint_->close();
        return;
    }
    stopping_.store(true);
    endpoint_->wake();
    if (thread_.joinable()) thread_.join();
    endpoint_->close();
}

void Listener::serve() {
    pthread_setname_np(pthread_self(), "mf-data-listen");
    Endpoint::News news;
    while (!stopping_.load()) {
        endpoint_->wait(Deadline::max(), news);
        for (const auto& link : news.links) hear(link);
    }
}

void Listener::hear(const std::shared_ptr<Link>& link) {
    Packet packet;
    const Reception reception = link->receive(packet);
    if (reception == Reception::Nothing) return;
    const std::optional<Connect> connect = reception == Reception::Packet ? decode_connect(packet.bytes) : std::nullopt;
    connect ? Server::process().admit(*connect, *endpoint_, *link) : endpoint_->drop(*link);
}

}  // namespace memfabric::tcp
