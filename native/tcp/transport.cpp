// SPDX-License-Identifier: Apache-2.0
#include "tcp/transport.h"

#include <memory>
#include <utility>

#include "tcp/move.h"

namespace memfabric::tcp {
namespace {

constexpr std::size_t kMostConnections = 32;
constexpr std::size_t kMostQuiet = 8;

TcpMove& move_of(Completion& completion) { return static_cast<TcpMove&>(*completion.work()); }

}  // namespace

TcpTransport::~TcpTransport() = default;

const Transport::Traits& TcpTransport::traits() const noexcept {
    static constexpr Traits kTraits{
        .route = Route::Tcp, .synchronous = false, .peer_is_idle = false, .addresses_are_ours = false, .part_bytes = 0};
    return kTraits;
}

// Sends what the sockets take at once: of a batch to several peers, all are under way before one is waited for.
void TcpTransport::start(const Move& move, Completion& completion) noexcept {
    completion.set_work(std::make_unique<TcpMove>(*this, move));
    if (move_of(completion).done()) static_cast<void>(progress(completion, Deadline::min()));
}

bool TcpTransport::progress(Completion& completion, Deadline until) noexcept {
    if (completion.done()) return true;
    TcpMove& move = move_of(completion);
    const bool moved = move.drive(until);
    if (!move.done()) return moved;
    Outcome outcome = move.outcome();
    completion.set_work(nullptr);
    completion.finish(std::move(outcome));
    return true;
}

void TcpTransport::cancel(Completion& completion) noexcept {
    if (!completion.done()) move_of(completion).cancel();
}

// The one that was used last: the others may be closed one day.
std::unique_ptr<Connection> TcpTransport::lease() {
    const std::lock_guard lock(mutex_);
    while (!quiet_.empty()) {
        std::unique_ptr<Connection> connection = std::move(quiet_.back());
        quiet_.pop_back();
        if (!connection->is_quiet()) continue;  // the target has gone meanwhile
        ++leased_;
        return connection;
    }
    if (leased_ >= kMostConnections) return nullptr;
    ++leased_;
    return std::make_unique<Connection>(target_);
}

void TcpTransport::give_back(std::unique_ptr<Connection> connection) {
    const std::lock_guard lock(mutex_);
    --leased_;
    if (connection != nullptr && quiet_.size() < kMostQuiet && connection->is_quiet()) {
        quiet_.push_back(std::move(connection));
    }
}

std::size_t TcpTransport::connections() const {
    const std::lock_guard lock(mutex_);
    return quiet_.size() + leased_;
}

}  // namespace memfabric::tcp
