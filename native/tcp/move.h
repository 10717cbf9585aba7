// SPDX-License-Identifier: Apache-2.0
//
// One move on its way: its lanes, and whoever drives them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>

#include "endpoint/address.h"
#include "tcp/cutter.h"
#include "tcp/lane.h"
#include "transports/completion.h"
#include "transports/transport.h"

namespace memfabric::tcp {

class TcpTransport;

// Thread contract: `drive` by one thread at a time; `cancel` from any.
class TcpMove final : public Completion::Work {
public:
    TcpMove(TcpTransport& transport, const Move& move);
    ~TcpMove() override;

    bool advance();              // true if something was moved; never waits
    bool drive(Deadline until);  // until it is done, or so long; false: nothing was moved
    bool done() const;
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    Outcome outcome() const;

private:
    void add_lanes();
    void obey_cancel();
    bool drains();
    void sleep(Deadline until);

    TcpTransport& transport_;
    const Move move_;
    Cutter cutter_;
    std::deque<Lane> lanes_;
    std::atomic<bool> cancelled_{false};
    bool cancelling_ = false;
    Deadline give_up_at_ = Deadline::max();
    bool given_up_ = false;
};

}  // namespace memfabric::tcp
