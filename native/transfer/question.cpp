// SPDX-License-Identifier: Apache-2.0
#include "transfer/question.h"

#include <algorithm>
#include <chrono>

#include "base/last_error.h"
#include "base/pause_point.h"
#include "sync/timed_lock.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

// Somebody else may read the answer, or close the link: nothing on the socket tells.
constexpr auto kAnswerLook = std::chrono::milliseconds(100);

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
Status drive(const Asker& asker, Peer& peer, const char* what, Done done) {
    for (;;) {
        const Peer::Heard heard = peer.link->flush() == Sending::Failed ? Peer::Heard::End : peer.hear();
        if (done()) return Status::Ok;
        if (!asker.open.load(std::memory_order_acquire)) {
            return fail(Status::NotConnected, "session %s: this engine was destroyed before the answer came; %s",
                        peer.session.c_str(), what);
        }
        if (heard == Peer::Heard::End || !peer.usable()) return explain_end(peer);
        const Deadline now = Clock::now();
        if (now >= asker.until) {
            return fail(Status::Timeout,
                        "session %s did not answer in time; its process is stopped, or its host cannot be reached; %s",
                        peer.session.c_str(), what);
        }
        if (heard == Peer::Heard::Some) continue;
        const Status status = peer.link->wait_for_news(std::min(asker.until, now + kAnswerLook));
        if (status == Status::Interrupted) return status;
    }
}

}  // namespace

Status explain_end(const Peer& peer) {
    if (peer.is_remote) {
        return fail(Status::NotConnected, "session %s: the connection to its host has ended", peer.session.c_str());
    }
    return fail(Status::NotConnected, "session %s: %s has ended, or its engine was destroyed", peer.session.c_str(),
                peer.process_name().c_str());
}

Status ask(const Asker& asker, Peer& peer, const Question& question, Answer& answer) {
    Status status = peer.asking.lock(asker.until);
    if (status == Status::Timeout) {
        return fail(status, "session %s: what was asked before was not answered in time; %s", peer.session.c_str(),
                    question.if_unsent);
    }
    if (status != Status::Ok) return status;
    const TimedLockGuard turn(peer.asking);
    const Reading reading(asker.service, peer);
    // What an earlier one left behind when it gave up goes first.
    status = drive(asker, peer, question.if_unsent, [&] { return peer.link->flush() == Sending::Sent; });
    if (status != Status::Ok) return status;
    const std::uint64_t number = ++peer.last_question;
    if (!peer.link->send_or_keep(question.encode(number))) return explain_end(peer);
    PausePoint::reach(question.pause_point);
    return drive(asker, peer, question.if_silent, [&] { return peer.take_answer(number, answer); });
}

}  // namespace memfabric
