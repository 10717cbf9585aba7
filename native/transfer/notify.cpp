// SPDX-License-Identifier: Apache-2.0
//
// Notifications on their way out: over the control link that a peer has anyway, one at a time, each acknowledged before
// the next one. Whoever notifies reads the link itself: between its thread and the peer's service thread there is no
// third one.
//
// Budget of one notification to an attached peer on this host: one packet each way, one wake-up on each side.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <memory>
#include <string>
#include <utility>

#include "base/interruption.h"
#include "base/last_error.h"
#include "base/limits.h"
#include "base/pause_point.h"
#include "base/traffic.h"
#include "endpoint/frames.h"
#include "sync/rcu.h"
#include "sync/timed_lock.h"
#include "transfer/engine.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

// Somebody else may read the answer, or close the link: nothing on the socket tells.
constexpr auto kAnswerLook = std::chrono::milliseconds(100);
constexpr int kMostNotifyAttempts = 3;

Status ended(const Peer& peer) {
    if (peer.is_remote) {
        return fail(Status::NotConnected, "session %s: the connection to its host has ended", peer.session.c_str());
    }
    return fail(Status::NotConnected, "session %s: %s has ended, or its engine was destroyed", peer.session.c_str(),
                peer.process_name().c_str());
}

Status explain(const Peer& peer, NotifyVerdict verdict) {
    switch (verdict) {
        case NotifyVerdict::Queued:
            return Status::Ok;
        case NotifyVerdict::TooMany:
            return fail(Status::NoResources,
                        "session %s: its queue is full, %u notifications that nobody there has taken; let it take them "
                        "(notifications(), notified() or a callback), then notify again",
                        peer.session.c_str(), kMaxQueuedNotifications);
        case NotifyVerdict::TooManyBytes:
            return fail(Status::NoResources,
                        "session %s: its queue is full, it holds %u bytes at most and nobody there takes them; let it "
                        "take its notifications (notifications(), notified() or a callback), then notify again",
                        peer.session.c_str(), kMaxQueuedNotificationBytes);
        case NotifyVerdict::Closed:
            return ended(peer);
    }
    return ended(peer);
}

// While one exists, its thread reads the peer's link and the service thread only sees its end.
class Reading {
public:
    Reading(SessionService& service, const Peer& peer) : service_(service), peer_(peer) { service_.mute(peer_); }
    ~Reading() { service_.unmute(peer_); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

private:
    SessionService& service_;
    const Peer& peer_;
};

// Until `done`; the peer's end, our own, the deadline and signals end it earlier.
template <typename Done>
Status drive(Peer& peer, const std::atomic<bool>& open, Deadline deadline, const char* what, Done done) {
    for (;;) {
        const bool linked = peer.link->flush() != Sending::Failed && peer.hear();
        if (done()) return Status::Ok;
        if (!open.load(std::memory_order_acquire)) {
            return fail(Status::NotConnected, "session %s: this engine was destroyed before the answer came; %s",
                        peer.session.c_str(), what);
        }
        if (!linked || !peer.usable()) return ended(peer);
        const Deadline now = Clock::now();
        if (now >= deadline) {
            return fail(Status::Timeout,
                        "session %s did not answer in time; its process is stopped, or its host cannot be reached; %s",
                        peer.session.c_str(), what);
        }
        const Status status = peer.link->wait_for_news(std::min(deadline, now + kAnswerLook));
        if (status == Status::Interrupted) return status;
    }
}

}  // namespace

Status TransferEngine::check_notification(std::string_view data) {
    if (data.size() <= kMaxNotificationBytes) return Status::Ok;
    return fail(Status::InvalidParam,
                "the notification has %zu bytes, at most %u are allowed; write what is longer into registered memory "
                "and notify where it is",
                data.size(), kMaxNotificationBytes);
}

std::shared_ptr<Peer> TransferEngine::attached(std::string_view session) const {
    const rcu::ReadGuard guard;
    Peer* peer = peers_.find(session);
    return peer != nullptr && peer->usable() ? peer->shared_from_this() : nullptr;
}

Status TransferEngine::notify(std::string_view session, std::string_view data) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (const Status status = check_notification(data); status != Status::Ok) return status;
    for (int attempt = 0; attempt < kMostNotifyAttempts; ++attempt) {
        if (const std::shared_ptr<Peer> peer = attached(session)) return notify_peer(*peer, data);
        if (const Status status = attach(std::string(session)); status != Status::Ok) return status;
    }
    return fail(Status::NotConnected, "session %.*s ended again and again while we attached to it",
                static_cast<int>(session.size()), session.data());
}

Status TransferEngine::notify_peer(Peer& peer, std::string_view data) {
    std::shared_ptr<SessionService> service;
    Deadline until;
    {
        const std::lock_guard lock(mutex_);
        service = service_;
        until = deadline();
    }
    if (service == nullptr) {
        return fail(Status::NotInit, "the transfer engine is not initialised: call initialize() first");
    }
    const char* const unsent = "nothing was sent";
    Status status = peer.notifying.lock(until);
    if (status == Status::Timeout) {
        return fail(status, "session %s: notifications before this one were not answered in time; %s",
                    peer.session.c_str(), unsent);
    }
    if (status != Status::Ok) return status;
    const TimedLockGuard turn(peer.notifying);
    const Reading reading(*service, peer);
    // What an earlier one left behind when it gave up goes first.
    status = drive(peer, open_, until, unsent, [&] { return peer.link->flush() == Sending::Sent; });
    if (status != Status::Ok) return status;
    const std::uint64_t number = ++peer.last_notify;
    if (!peer.link->send_or_keep(encode_notify(number, data))) return ended(peer);
    PausePoint::reach("transfer.notify.sent");
    NotifyVerdict verdict{};
    status =
        drive(peer, open_, until, "the notification may still arrive", [&] { return peer.answer_to(number, verdict); });
    if (status != Status::Ok) return status;
    const rcu::ReadGuard guard;
    guard.traffic().add(peer.transport->traits().route, Operation::Notify, data.size());
    return explain(peer, verdict);
}

// The bytes and the word go to the same engine: one that came in its place meanwhile has not got them.
Status TransferEngine::write_and_notify(std::string_view session, std::span<const Piece> pieces,
                                        std::uint64_t total_bytes, std::string_view data) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (const Status status = check_notification(data); status != Status::Ok) return status;
    for (int attempt = 0; attempt < kMostNotifyAttempts; ++attempt) {
        if (const std::shared_ptr<Peer> peer = attached(session)) {
            if (const Status status = move_to(*peer, {Direction::Write, pieces, total_bytes}); status != Status::Ok) {
                return status;
            }
            PausePoint::reach("transfer.notify.written");
            const Status status = notify_peer(*peer, data);
            if (status == Status::Ok || status == Status::Interrupted) return status;
            return fail(status, "all %" PRIu64 " bytes were written, but the notification was not delivered: %s",
                        total_bytes, take_last_error().c_str());
        }
        if (const Status status = attach(std::string(session)); status != Status::Ok) return status;
    }
    return fail(Status::NotConnected, "session %.*s ended again and again while we attached to it",
                static_cast<int>(session.size()), session.data());
}

}  // namespace memfabric
