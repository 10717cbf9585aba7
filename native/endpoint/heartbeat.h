// SPDX-License-Identifier: Apache-2.0
//
// Says "I am alive" on a socket at a steady pace, from a thread of its own: a Python program that computes for seconds
// without giving others a turn must not look dead.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"

namespace memfabric {

// Owns a duplicate of the descriptor, so the caller may close its own at any time. Nobody else may write to the socket
// meanwhile: a beat could land inside another message. The first beat is due after one interval; a peer that does not
// read delays beats, never the rest of the process. Ends by itself when sending fails: the peer is gone.
//
// With `beat_bytes` the payload is a supply of beats of that size, each of which is sent once, in order: those of an
// encrypted connection differ. It pauses while the supply is used up; `add` brings more, from any thread.
class MF_API Heartbeat {
public:
    static Status start(int fd, std::string payload, std::chrono::milliseconds interval,
                        std::unique_ptr<Heartbeat>& started, std::size_t beat_bytes = 0);
    ~Heartbeat();
    Heartbeat(const Heartbeat&) = delete;
    Heartbeat& operator=(const Heartbeat&) = delete;

    Status add(std::string_view beats);  // whole ones; only with `beat_bytes`
    std::size_t beats_left() const;      // of the supply; 0 without one
    void stop();                         // ends the thread and joins it, at once even if the socket is full; idempotent
    bool beating() const;                // false after stop, after a failed send, and in a forked child

private:
    struct Pulse;  // what the thread uses

    explicit Heartbeat(std::unique_ptr<Pulse> pulse);

    const ForkGuard fork_guard_;
    std::unique_ptr<Pulse> pulse_;
    std::thread thread_;
};

}  // namespace memfabric
