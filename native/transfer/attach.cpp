// SPDX-License-Identifier: Apache-2.0
//
// How an engine gets attached to its peers: on first use, once for all who wait, afresh after every failure.
#include <chrono>
#include <utility>

#include "base/interruption.h"
#include "base/last_error.h"
#include "sync/rcu.h"
#include "transfer/dialling.h"
#include "transfer/engine.h"

namespace memfabric {
namespace {

constexpr std::chrono::hours kUntilDialled{24};  // whoever dials has a deadline

}  // namespace

Status TransferEngine::attach(const std::string& session) {
    std::unique_lock lock(dial_mutex_);
    for (auto running = dials_.find(session); running != dials_.end(); running = dials_.find(session)) {
        // Somebody is dialling: its outcome is ours. Dialling one after the other would multiply the time-out.
        const std::shared_ptr<Dial> shared = running->second;
        while (!dial_done_.wait_for(lock, Interruption::slice(kUntilDialled), [&] { return shared->done; })) {
            lock.unlock();
            if (Interruption::requested()) return Status::Interrupted;
            lock.lock();
        }
        if (shared->status == Status::Interrupted) continue;  // by a signal of its own: it was not tried to the end
        if (shared->status != Status::Ok) set_last_error(shared->sentence);
        return shared->status;
    }
    const auto own = std::make_shared<Dial>();
    dials_.emplace(session, own);
    lock.unlock();
    const Status status = dial_once(session);
    lock.lock();
    own->done = true;
    own->status = status;
    if (status != Status::Ok) own->sentence = last_error();
    dials_.erase(session);
    dial_done_.notify_all();
    return status;
}

Status TransferEngine::attach_to(std::string_view session, std::shared_ptr<Peer>& peer) {
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
        {
            const rcu::ReadGuard guard;
            Peer* found = peers_.find(session);
            if (found != nullptr && found->usable()) {
                peer = found->shared_from_this();
                return Status::Ok;
            }
        }
        if (const Status status = attach(std::string(session)); status != Status::Ok) return status;
    }
    return ends_again_and_again(session);
}

Status TransferEngine::ends_again_and_again(std::string_view session) {
    return fail(Status::NotConnected, "session %.*s ended again and again while we attached to it",
                static_cast<int>(session.size()), session.data());
}

Status TransferEngine::dial_once(const std::string& session) {
    DialRequest request;
    Directory directory;
    std::shared_ptr<SessionService> service;
    {
        const std::lock_guard lock(mutex_);
        if (!open_.load()) {
            return fail(Status::NotInit, "the transfer engine is not initialised: call initialize() first");
        }
        request.session = session;
        request.own_instance = instance_;
        request.own_session = session_;
        request.own_host = host_;
        request.allowed = allowed_;
        request.choose = choose_network_route_;
        request.ucx = ucx_options_;
        request.identity = identity_;
        request.deadline = deadline();
        directory = directory_;
        service = service_;
    }
    {
        // Whoever dialled last may just have finished.
        const rcu::ReadGuard guard;
        const Peer* peer = peers_.find(session);
        if (peer != nullptr && peer->usable()) return Status::Ok;
    }
    const Status parsed = SessionAddress::parse(session, request.address);
    if (parsed != Status::Ok || request.address.port == 0) {
        std::string found;
        if (directory == nullptr) {
            return parsed != Status::Ok
                       ? parsed
                       : fail(Status::InvalidParam, "session '%s' has no port, and there is no store to look it up in",
                              session.c_str());
        }
        if (const Status status = directory(session, found); status != Status::Ok) return status;
        if (const Status status = SessionAddress::parse(found, request.address); status != Status::Ok) return status;
    }
    std::shared_ptr<Peer> peer;
    if (const Status status = dial(request, peer); status != Status::Ok) return status;
    service->watch(peer);
    peers_.put(std::move(peer));
    return Status::Ok;
}

Status TransferEngine::probe(std::string_view session) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    {
        const rcu::ReadGuard guard;
        const Peer* peer = peers_.find(session);
        if (peer != nullptr && peer->usable()) return Status::Ok;
    }
    return attach(std::string(session));
}

Status TransferEngine::route(std::string_view session, Route& route, std::string& reason) {
    if (const Status status = probe(session); status != Status::Ok) return status;
    const rcu::ReadGuard guard;
    const Peer* peer = peers_.find(session);
    if (peer == nullptr)
        return fail(Status::NotConnected, "session %.*s ended while we asked for the way there",
                    static_cast<int>(session.size()), session.data());
    route = peer->route();
    reason = peer->route_reason;
    return Status::Ok;
}

}  // namespace memfabric
