// SPDX-License-Identifier: Apache-2.0
#include "transfer/service.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "base/blocked_signals.h"
#include "base/last_error.h"
#include "endpoint/credentials.h"
#include "tcp/server.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kForeignSecret = "the secret is that of another engine; the session was restarted";
constexpr int kMostInTurn = 64;  // questions of one peer, before others are heard
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kLookPause = std::chrono::milliseconds(10);  // between looks at a process without a link

}  // namespace

Status SessionService::start(const SessionOffer& offer, OwnedFd tcp_listener, std::shared_ptr<PeerFailures> failures,
                             std::shared_ptr<Notifications> notifications, std::unique_ptr<SessionService>& started) {
    std::unique_ptr<SessionService> service(new SessionService(offer, std::move(failures), std::move(notifications)));
    if (const Status status = service->open(std::move(tcp_listener)); status != Status::Ok) return status;
    try {
        const BlockedSignals blocked;
        service->thread_ = std::thread([raw = service.get()] { raw->serve(); });
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "session %s cannot start its thread: %s", offer.session.c_str(), error.what());
    }
    started = std::move(service);
    return Status::Ok;
}

SessionService::SessionService(const SessionOffer& offer, std::shared_ptr<PeerFailures> failures,
                               std::shared_ptr<Notifications> notifications)
    : offer_(offer),
      unix_name_("memfabric-transfer-" + hexadecimal(offer.instance)),
      failures_(std::move(failures)),
      notifications_(std::move(notifications)) {}

// In a forked child only the descriptors go: closing the parent's copies there must not end its connections, and the
// thread is not here.
SessionService::~SessionService() {
    if (fork_guard_.in_forked_child()) {
        ForkGuard::abandon(thread_);
        if (endpoint_ != nullptr) endpoint_->close();
        return;
    }
    stop();
}

void SessionService::stop() {
    const std::lock_guard joining(joining_);
    stopping_.store(true);
    if (endpoint_ == nullptr) return;
    endpoint_->wake();
    if (thread_.joinable()) thread_.join();
    offer_.segments->wake_when_crowded(nullptr);
    const std::lock_guard lock(mutex_);
    for (const auto& [key, known] : initiators_) {
        known.second->gone.store(true);
        offer_.segments->dismiss(*known.first);
    }
    for (const auto& [key, peer] : peers_) {
        peer->gone.store(true);
        peer->link->hang_up();  // whoever waits there for an answer sees it
    }
    for (const auto& initiator : unlinked_) initiator->gone.store(true);
    initiators_.clear();
    remote_initiators_.clear();
    peers_.clear();
    unlinked_.clear();
    unheard_.clear();
    endpoint_->close();
}

Status SessionService::open(OwnedFd tcp_listener) {
    OwnedFd unix_listener;
    Status status = listen_abstract(unix_name_, unix_listener);
    if (status != Status::Ok) return status;
    std::vector<Endpoint::Listener> listeners;
    listeners.push_back({Link::Kind::Tcp, std::move(tcp_listener), offer_.identity});
    listeners.push_back({Link::Kind::Unix, std::move(unix_listener), nullptr});
    status = Endpoint::open(std::move(listeners), Endpoint::kMustSpeakSoon, endpoint_);
    if (status != Status::Ok) {
        return fail(status, "session %s: %s", offer_.session.c_str(), take_last_error().c_str());
    }
    offer_.segments->wake_when_crowded(endpoint_);
    return Status::Ok;
}

void SessionService::serve() {
    pthread_setname_np(pthread_self(), "mf-session");
    Endpoint::News news;
    bool waiting = false;  // for time to pass
    while (!stopping_.load()) {
        endpoint_->wait(!unheard_.empty() ? Clock::now() : waiting ? Clock::now() + kTick : Deadline::max(), news);
        const std::lock_guard lock(mutex_);
        news.links.insert(news.links.end(), unheard_.begin(), unheard_.end());
        unheard_.clear();
        for (const LinkPointer& link : news.links) hear(link);
        waiting = tick();
    }
}

// True while something waits for time to pass.
bool SessionService::tick() {
    const Deadline now = Clock::now();
    std::erase_if(departed_, [](const std::shared_ptr<Peer>& peer) { return peer->segments.collect(); });
    if (retry_at_ <= now) {
        crowded_ = offer_.segments->retry();
        if (crowded_) retry_at_ = now + kTick;
    }
    bool waiting = crowded_ || !departed_.empty();
    for (const auto& [key, peer] : peers_) waiting |= !peer->segments.collect();
    return waiting;
}

// After the handshake an initiator asks questions only: any other word is as good as the end.
void SessionService::hear(const LinkPointer& link) {
    if (const auto peer = peers_.find(link.get()); peer != peers_.end()) {
        const Peer::Heard heard = peer->second->hear();
        if (heard == Peer::Heard::Some) unheard_.push_back(link);
        if (heard == Peer::Heard::End) end_peer(*link);
    } else if (const auto known = initiators_.find(link.get()); known != initiators_.end()) {
        if (!hear_questions(link, known->second.second->session)) return end_initiator(*link);
        offer_.segments->flush(*link);
    } else if (const auto remote = remote_initiators_.find(link.get()); remote != remote_initiators_.end()) {
        if (!hear_questions(link, remote->second.session)) end_remote_initiator(*link);
    } else if (link->kind() == Link::Kind::Tcp) {
        hear_stranger(link);
    } else {
        hear_attach(link);
    }
}

// All that have arrived, each with its answer; a peer that does not take its answers is not listened to until it does.
// False: the link has ended.
bool SessionService::hear_questions(const LinkPointer& link, const std::string& session) {
    for (int heard = 0; heard < kMostInTurn; ++heard) {
        const Sending sending = link->flush();
        if (sending != Sending::Sent) return sending != Sending::Failed;  // its socket tells when it has room
        Packet packet;
        const Reception reception = link->receive(packet);
        if (reception != Reception::Packet) return reception == Reception::Nothing;
        if (!packet.fds.empty() || packet.fds_lost || !answer(link, session, packet)) return false;
    }
    unheard_.push_back(link);
    return true;
}

// False: it is no question, or the link has ended.
bool SessionService::answer(const LinkPointer& link, const std::string& session, const Packet& packet) {
    if (const std::optional<AskRegion> ask = decode_ask_region(packet.bytes)) {
        return link->send_or_keep(encode(region_at(*ask)));
    }
    std::optional<Notify> notify = decode_notify(packet.bytes);
    if (!notify) return false;
    const NotifyVerdict verdict = notifications_->put(session, std::move(notify->data));
    return link->send_or_keep(encode(Notified{notify->number, verdict}));
}

ServedRegion SessionService::region_at(const AskRegion& ask) const {
    if (offer_.ucx_ranges == nullptr) return {ask.number, RegionVerdict::Failed, offer_.ucx.obstacle, 0, 0, {}, {}};
    const ucx::ServedAt found = offer_.ucx_ranges->find(ask.address);
    switch (found.verdict) {
        case ucx::ServedAt::Verdict::Unknown:
            return {ask.number, RegionVerdict::Unknown, {}, 0, 0, {}, {}};
        case ucx::ServedAt::Verdict::Failed:
            return {ask.number, RegionVerdict::Failed, found.obstacle, 0, 0, {}, {}};
        case ucx::ServedAt::Verdict::Served:
            break;
    }
    const ucx::RemoteRegion& region = found.region;
    if (found.worker_address.size() + region.key.size() > kLongestUcxBytes) {
        return {ask.number, RegionVerdict::Failed, "UCX's address and key are too long to be told", 0, 0, {}, {}};
    }
    return {ask.number, RegionVerdict::Served, {}, region.base, region.size_bytes, found.worker_address, region.key};
}

// The peer hangs up when it has its answer and is on this host; closing first could destroy that on its way.
void SessionService::hear_stranger(const LinkPointer& link) {
    Packet packet;
    const Reception reception = link->receive(packet);
    if (reception == Reception::Nothing) return;
    if (reception == Reception::End) return endpoint_->drop(*link);
    if (const std::optional<Connect> connect = decode_connect(packet.bytes)) {
        return tcp::Server::process().admit(*connect, *endpoint_, *link);
    }
    if (const std::optional<AttachRemote> attach = decode_attach_remote(packet.bytes)) {
        return admit_remote(link, *attach);
    }
    const Welcome welcome{offer_.host, unix_name_, offer_.instance, offer_.secret};
    if (!decode_hello(packet.bytes) || link->send(encode(welcome)) != Sending::Sent) endpoint_->drop(*link);
}

void SessionService::admit_remote(const LinkPointer& link, const AttachRemote& attach) {
    if (attach.secret != offer_.secret) {
        static_cast<void>(link->send(encode(Refused{kForeignSecret})));
        return endpoint_->drop(*link);
    }
    RemoteDescriptors descriptor;
    if (RemoteDescriptors::take(1, descriptor) != Status::Ok) {
        static_cast<void>(link->send(encode(Refused{take_last_error()})));
        return endpoint_->drop(*link);
    }
    const AcceptedRemote accepted{offer_.data_address.host, offer_.data_address.port, offer_.data_secret, offer_.ucx};
    if (link->send(encode(accepted)) != Sending::Sent) return endpoint_->drop(*link);
    link->keep_alive();
    endpoint_->trust(*link);
    remote_initiators_.emplace(link.get(), RemoteInitiator{link, std::move(descriptor), attach.initiator_session,
                                                           attach.initiator, failures_->begin_link()});
}

void SessionService::hear_attach(const LinkPointer& link) {
    Packet packet;
    const Reception reception = link->receive(packet);
    if (reception == Reception::Nothing) return;
    ucred credentials{};
    if (reception == Reception::End || !link->peer(credentials)) return endpoint_->drop(*link);
    const std::string reason = reason_to_refuse(packet, credentials);
    auto initiator = std::make_shared<Initiator>();
    if (!reason.empty() || InitiatorEpochs::map(packet.fds[0].get(), initiator->page) != Status::Ok) {
        static_cast<void>(link->send(encode(Refused{reason.empty() ? take_last_error() : reason})));
        return endpoint_->drop(*link);
    }
    const Attach attach = *decode_attach(packet.bytes);
    initiator->pid = credentials.pid;
    initiator->session = attach.initiator_session;
    initiator->instance = attach.initiator;
    initiator->linked_since = failures_->begin_link();
    // Known before it can see our registrations: see wait_for_initiators().
    initiators_.emplace(link.get(), std::pair(link, std::move(initiator)));
    endpoint_->trust(*link);
    if (!offer_.segments->admit(link, offer_.instance, offer_.data_secret, offer_.registrations_fd)) {
        end_initiator(*link);
    }
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
    if (attach->secret != offer_.secret) return kForeignSecret;
    return "";
}

// Their links ended, by whichever side.
void SessionService::end_initiator(Link& link) {
    const auto [kept, initiator] = std::move(initiators_.extract(&link).mapped());
    offer_.segments->dismiss(link);
    endpoint_->drop(link);
    remember(initiator);
    failures_->report(initiator->session, initiator->instance, initiator->linked_since);
}

void SessionService::end_remote_initiator(Link& link) {
    const RemoteInitiator initiator = std::move(remote_initiators_.extract(&link).mapped());
    endpoint_->drop(link);
    failures_->report(initiator.session, initiator.instance, initiator.linked_since);
}

void SessionService::end_peer(Link& link) {
    const std::shared_ptr<Peer> peer = std::move(peers_.extract(&link).mapped());
    endpoint_->drop(link);
    peer->hang_up();
    departed_.push_back(peer);
    failures_->report(peer->session, peer->instance, peer->linked_since);
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

void SessionService::watch(std::shared_ptr<Peer> peer) {
    const std::lock_guard lock(mutex_);
    if (stopping_.load() || !endpoint_->add(peer->link)) {
        peer->gone.store(true, std::memory_order_release);
        return;
    }
    peer->linked_since = failures_->begin_link();
    peers_.emplace(peer->link.get(), peer);
}

void SessionService::mute(const Peer& peer) { endpoint_->mute(*peer.link); }

void SessionService::unmute(const Peer& peer) { endpoint_->unmute(*peer.link); }

bool SessionService::wait_for_initiators(Deadline deadline, pid_t& late) {
    std::vector<std::shared_ptr<Initiator>> initiators;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [key, known] : initiators_) initiators.push_back(known.second);
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

}  // namespace memfabric
