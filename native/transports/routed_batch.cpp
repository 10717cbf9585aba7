// SPDX-License-Identifier: Apache-2.0
#include "transports/routed_batch.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "base/interruption.h"
#include "base/last_error.h"

namespace memfabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookInterval{50};  // at `may_go_on`, while others move

Outcome run_now(Transport& transport, const Move& move) {
    Completion completion;
    transport.start(move, completion);
    return completion.outcome();
}

Status stalled(std::chrono::nanoseconds limit) {
    return fail(Status::Timeout,
                "no byte has moved for %.3f s, though the connection stands; the peer is stopped, or the network is",
                std::chrono::duration<double>(limit).count());
}

Outcome ended_by(Status status) { return {status, 0, take_last_error()}; }

// A leg whose transport does the work on the calling thread.
Outcome run_in_parts(const RoutedBatch::Leg& leg, const RoutedBatch::MayGoOn& may_go_on) {
    const Transport::Traits& traits = leg.transport->traits();
    if (traits.part_bytes == 0 || leg.total_bytes <= traits.part_bytes) return run_now(*leg.transport, leg.move());
    Outcome sum;
    std::size_t left_bytes = leg.total_bytes;
    static_cast<void>(for_each_part(leg.move(), traits.part_bytes, traits.addresses_are_ours, [&](const Move& part) {
        sum += run_now(*leg.transport, part);
        left_bytes -= part.total_bytes;
        if (sum.status != Status::Ok || left_bytes == 0) return sum.status;
        if (const Status status = may_go_on(); status != Status::Ok) sum += ended_by(status);
        return sum.status;
    }));
    return sum;
}

// Moves that end by themselves, and are waited for in any case.
class Started {
public:
    void start(const RoutedBatch::Leg& leg) {
        moves_.emplace_back(leg.transport, leg.move());
        leg.transport->start(moves_.back().move, moves_.back().completion);
    }
    void finish(Outcome& sum, const RoutedBatch::MayGoOn& may_go_on, std::chrono::nanoseconds stall_limit) {
        auto last_moved = Clock::now();
        for (One& one : moves_) {
            while (sum.status == Status::Ok && !one.completion.done()) {
                const bool moved = one.transport->progress(one.completion, Clock::now() + kLookInterval);
                if (moved) last_moved = Clock::now();
                if (one.completion.done()) break;
                Status status = Interruption::requested() ? Status::Interrupted : may_go_on();
                if (status == Status::Ok && Clock::now() - last_moved > stall_limit) status = stalled(stall_limit);
                if (status != Status::Ok) sum += ended_by(status);
            }
            if (sum.status != Status::Ok) cancel();
            one.transport->finish(one.completion);
            sum += one.completion.outcome();
        }
    }

private:
    struct One {
        One(Transport* through, const Move& what) : transport(through), move(what) {}
        Transport* transport;
        Move move;
        Completion completion;
    };

    void cancel() {
        if (std::exchange(cancelled_, true)) return;
        for (One& one : moves_) {
            if (!one.completion.done()) one.transport->cancel(one.completion);
        }
    }

    std::deque<One> moves_;  // which do not move themselves
    bool cancelled_ = false;
};

}  // namespace

void RoutedBatch::select(Transport& transport, Direction direction, std::size_t expected) {
    const auto found = std::ranges::find_if(
        legs_, [&](const Leg& leg) { return leg.transport == &transport && leg.direction == direction; });
    last_ = static_cast<std::size_t>(found - legs_.begin());
    if (found != legs_.end()) return;
    legs_.push_back({&transport, direction, 0, {}});
    legs_.back().pieces.reserve(expected + 1);
}

bool RoutedBatch::synchronous() const {
    return std::ranges::all_of(legs_, [](const Leg& leg) { return leg.transport->traits().synchronous; });
}

Outcome RoutedBatch::run() const {
    Outcome sum;
    for (const Leg& leg : legs_) {
        sum += run_now(*leg.transport, leg.move());
        if (sum.status != Status::Ok) break;
    }
    return sum;
}

Outcome RoutedBatch::run(const MayGoOn& may_go_on, std::chrono::nanoseconds stall_limit) const {
    Started started;
    for (const Leg& leg : legs_) {
        if (!leg.transport->traits().synchronous) started.start(leg);
    }
    Outcome sum;
    for (const Leg& leg : legs_) {
        if (!leg.transport->traits().synchronous || sum.status != Status::Ok) continue;
        sum += run_in_parts(leg, may_go_on);
        if (sum.status != Status::Ok) continue;
        if (const Status status = may_go_on(); status != Status::Ok) sum += ended_by(status);
    }
    started.finish(sum, may_go_on, stall_limit);
    return sum;
}

}  // namespace memfabric
