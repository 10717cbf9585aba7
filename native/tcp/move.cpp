// SPDX-License-Identifier: Apache-2.0
#include "tcp/move.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/interruption.h"
#include "base/limits.h"
#include "tcp/socket.h"
#include "tcp/transport.h"

namespace memfabric::tcp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLeasePause{1};        // between looks for a connection that others have given back
constexpr std::size_t kLaneBytes = std::size_t{16} << 20;  // one more lane for every so many
constexpr std::size_t kMostLanes = 4;

// The target serves connections on several threads if it has the cores; one thread of ours drives them all.
std::size_t lanes_wanted(std::size_t total_bytes) {
    const std::size_t most = std::clamp<std::size_t>(usable_cores() / 2, 1, kMostLanes);
    return std::clamp<std::size_t>(total_bytes / kLaneBytes, 1, most);
}

}  // namespace

TcpMove::TcpMove(TcpTransport& transport, const Move& move) : transport_(transport), move_(move), cutter_(move) {
    add_lanes();
    advance();
}

TcpMove::~TcpMove() {
    for (Lane& lane : lanes_) transport_.give_back(lane.take_connection());
}

void TcpMove::add_lanes() {
    const std::size_t wanted = lanes_wanted(move_.total_bytes);
    // Others join when the first one knows that all of it may be touched.
    while (lanes_.size() < (lanes_.empty() || lanes_.front().checking() ? 1 : wanted)) {
        std::unique_ptr<Connection> connection = transport_.lease();
        if (connection == nullptr) return;
        lanes_.emplace_back(std::move(connection), move_.direction, cutter_);
    }
}

bool TcpMove::done() const {
    return given_up_ || (!lanes_.empty() && std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.done(); }));
}

bool TcpMove::advance() {
    if (!cancelling_ && !cutter_.exhausted()) add_lanes();
    obey_cancel();
    bool moved = false;
    bool failed = false;
    for (Lane& lane : lanes_) {
        moved |= lane.advance();
        failed |= lane.done() && lane.status() != Status::Ok;
    }
    if (failed && !cancelling_) cancel();  // what the others have not asked for yet is of no use
    return moved;
}

void TcpMove::obey_cancel() {
    if (cancelling_ || !cancelled_.load(std::memory_order_relaxed)) return;
    cancelling_ = true;
    give_up_at_ = Clock::now() + kFarewell;
    if (lanes_.empty()) given_up_ = true;
    for (Lane& lane : lanes_) lane.cancel();
}

bool TcpMove::drains() {
    bool any = false;
    for (Lane& lane : lanes_) any |= lane.drains();
    return any;
}

bool TcpMove::drive(Deadline until) {
    bool moved = false;
    auto last_moved = Clock::now();
    while (!done()) {
        if (advance()) {
            last_moved = Clock::now();
            moved = true;
            continue;
        }
        const auto now = Clock::now();
        if (now >= give_up_at_) given_up_ = true;
        if (now >= until || given_up_ || Interruption::requested()) return moved || drains();
        if (now - last_moved < kSpin) {
            cpu_relax();
        } else {
            sleep(std::min(until, give_up_at_));
        }
    }
    return moved;
}

void TcpMove::sleep(Deadline until) {
    std::vector<pollfd> waited;
    for (const Lane& lane : lanes_) {
        if (!lane.done()) waited.push_back({lane.fd(), lane.awaited(), 0});
    }
    std::chrono::nanoseconds left = Interruption::slice(until - Clock::now());
    if (waited.empty()) left = std::min<std::chrono::nanoseconds>(left, kLeasePause);
    const timespec timeout{std::chrono::duration_cast<std::chrono::seconds>(left).count(),
                           left.count() % 1'000'000'000};
    ppoll(waited.data(), waited.size(), &timeout, nullptr);
}

Outcome TcpMove::outcome() const {
    Outcome sum;
    for (const Lane& lane : lanes_) {
        sum += {lane.status(), lane.moved_bytes(), lane.reason(), lane.may_have_touched_more(), lane.refused()};
    }
    if (given_up_) {
        sum += {Status::NotStarted, 0, "it was ended early, and the target did not say how far it came"};
        sum.may_have_touched_more |= move_.direction == Direction::Write;
    }
    return sum;
}

}  // namespace memfabric::tcp
