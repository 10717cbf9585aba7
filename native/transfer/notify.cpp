// SPDX-License-Identifier: Apache-2.0
//
// Notifications on their way out: questions to the peer, whose answer says that they are in its queue.
#include <cinttypes>
#include <memory>
#include <string>
#include <utility>

#include "base/last_error.h"
#include "base/limits.h"
#include "base/pause_point.h"
#include "base/traffic.h"
#include "endpoint/frames.h"
#include "sync/rcu.h"
#include "transfer/engine.h"
#include "transfer/question.h"

namespace memfabric {
namespace {

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
            return explain_end(peer);
    }
    return explain_end(peer);
}

}  // namespace

Status TransferEngine::check_notification(std::string_view data) {
    if (data.size() <= kMaxNotificationBytes) return Status::Ok;
    return fail(Status::InvalidParam,
                "the notification has %zu bytes, at most %u are allowed; write what is longer into registered memory "
                "and notify where it is",
                data.size(), kMaxNotificationBytes);
}

Status TransferEngine::notify(std::string_view session, std::string_view data) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (const Status status = check_notification(data); status != Status::Ok) return status;
    std::shared_ptr<Peer> peer;
    const Status status = attach_to(session, peer);
    return status == Status::Ok ? notify_peer(*peer, data) : status;
}

Status TransferEngine::notify_peer(Peer& peer, std::string_view data) {
    Answer answer;
    const Question question{.encode = [&](std::uint64_t number) { return encode_notify(number, data); },
                            .pause_point = "transfer.notify.sent",
                            .if_unsent = "nothing was sent",
                            .if_silent = "the notification may still arrive"};
    if (const Status status = ask_peer(peer, question, answer); status != Status::Ok) return status;
    const rcu::ReadGuard guard;
    guard.traffic().add(peer.route(), Operation::Notify, data.size());
    return explain(peer, answer.verdict);
}

// The bytes and the word go to the same engine: one that came in its place meanwhile has not got them.
Status TransferEngine::write_and_notify(std::string_view session, std::span<const Piece> pieces,
                                        std::uint64_t total_bytes, std::string_view data) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    if (const Status status = check_notification(data); status != Status::Ok) return status;
    std::shared_ptr<Peer> peer;
    if (const Status status = attach_to(session, peer); status != Status::Ok) return status;
    if (const Status status = move_to(*peer, {Direction::Write, pieces, total_bytes}); status != Status::Ok)
        return status;
    PausePoint::reach("transfer.notify.written");
    const Status status = notify_peer(*peer, data);
    if (status == Status::Ok || status == Status::Interrupted) return status;
    return fail(status, "all %" PRIu64 " bytes were written, but the notification was not delivered: %s", total_bytes,
                take_last_error().c_str());
}

}  // namespace memfabric
