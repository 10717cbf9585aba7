// SPDX-License-Identifier: Apache-2.0
//
// A question to an attached peer, over the control link that it has anyway; one at a time, each answered before the
// next one. Whoever asks reads the link itself: between its thread and the peer's service thread there is no third one.
//
// Budget of one question to a peer on this host: one packet each way, one wake-up on each side.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/packets.h"
#include "transfer/peers.h"
#include "transfer/service.h"

namespace memfabric {

// Who asks. The engine's end, the deadline and signals end the wait.
struct Asker {
    SessionService& service;
    const std::atomic<bool>& open;
    Deadline until;
};

struct Question {
    std::function<Bytes(std::uint64_t number)> encode;
    const char* pause_point;  // when it is sent, for tests
    const char* if_unsent;    // ends the sentence of a failure: what did not happen ...
    const char* if_silent;    // ... or what nobody knows
};

// NotConnected, Timeout or Interrupted, with a sentence that names the session.
Status ask(const Asker& asker, Peer& peer, const Question& question, Answer& answer);

// The sentence of a peer that has gone.
[[gnu::cold]] Status explain_end(const Peer& peer);

}  // namespace memfabric
