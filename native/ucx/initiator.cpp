// SPDX-License-Identifier: Apache-2.0
#include "ucx/initiator.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/cpu.h"
#include "base/interruption.h"
#include "base/last_error.h"
#include "base/limits.h"
#include "base/pause_point.h"
#include "ucx/spin.h"

namespace memfabric::ucx {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Status Initiator::make(const Context& context, std::unique_ptr<Initiator>& made) {
    std::unique_ptr<Initiator> initiator(new Initiator);
    initiator->wake_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!initiator->wake_fd_) {
        return fail(Status::NoResources, "no descriptor to wake UCX with: %s; raise the limit of open files",
                    std::strerror(errno));
    }
    if (const Status status = context.make_worker(initiator->worker_); status != Status::Ok) return status;
    made = std::move(initiator);
    return Status::Ok;
}

// All moves have ended; what is left are connections. One that does not close in time ends with its worker, which may
// tell it so: it stays.
Initiator::~Initiator() {
    const auto give_up_at = Clock::now() + kFarewell;
    while (worker_ != nullptr && (step(), !closing_.empty()) && Clock::now() < give_up_at) cpu_relax();
    for (auto& endpoint : closing_) static_cast<void>(endpoint.release());
}

void Initiator::submit(UcxMove& move) {
    {
        const std::lock_guard lock(mutex_);
        submitted_.push_back(&move);
    }
    if (!take_turn()) return wake();
    step();
    leave_turn();
}

void Initiator::retire(std::unique_ptr<Endpoint> endpoint) {
    {
        const std::lock_guard lock(mutex_);
        retired_.push_back(std::move(endpoint));
    }
    if (!take_turn()) return wake();
    step();
    leave_turn();
}

bool Initiator::drive(UcxMove& move, Deadline until) {
    const std::uint64_t before = move.activity();
    while (!move.done()) {
        const auto now = Clock::now();
        // Signal handlers run without the turn: they may begin moves themselves.
        if (now >= until || Interruption::requested()) break;
        const std::chrono::nanoseconds longest = Interruption::slice(until - now);
        if (take_turn()) {
            drive_for(move, now + longest);
            leave_turn();
        } else {
            turn_left_.wait_unless([&] { return !driven_.load() || move.done(); }, longest);
        }
    }
    return move.done() || move.activity() != before;
}

void Initiator::leave_turn() {
    PausePoint::reach("ucx.initiator.leave");
    driven_.store(false);
    turn_left_.notify_all();
}

void Initiator::drive_for(UcxMove& move, Deadline until) {
    Spin spin(kInitiatorSpin);
    for (;;) {
        const bool changed = step();
        if (move.done()) return;
        const auto now = Clock::now();
        if (now >= until) return;
        if (changed) {
            spin.begin();
        } else if (spin.goes_on()) {
            std::this_thread::yield();  // the other side may be on this core
        } else if (worker_->arm()) {
            sleep(until);
            spin.begin();
        }
    }
}

// With the turn: one call of UCX, and what follows from it.
bool Initiator::step() {
    const std::size_t begun = moves_.size();
    {
        const std::lock_guard lock(mutex_);
        moves_.insert(moves_.end(), submitted_.begin(), submitted_.end());
        submitted_.clear();
        std::ranges::move(retired_, std::back_inserter(closing_));
        retired_.clear();
    }
    for (std::size_t i = begun; i < moves_.size(); ++i) moves_[i]->advance();  // its bytes leave before anybody listens
    bool changed = worker_->progress();
    for (UcxMove* move : moves_) changed |= move->advance();
    changed |= close_retired();
    const auto over = std::ranges::partition(moves_, [](const UcxMove* move) { return !move->is_over(); });
    if (over.empty()) return changed;
    const std::vector<UcxMove*> done(over.begin(), over.end());
    moves_.erase(over.begin(), over.end());
    for (UcxMove* move : done) move->set_done();
    turn_left_.notify_all();
    return true;
}

bool Initiator::close_retired() {
    for (const auto& endpoint : closing_) endpoint->begin_close();
    return std::erase_if(closing_, [](const auto& endpoint) { return endpoint->is_closed(); }) != 0;
}

void Initiator::sleep(Deadline until) {
    for (const UcxMove* move : moves_) until = std::min(until, move->look_again_at());
    const auto left = std::max<std::chrono::nanoseconds>(until - Clock::now(), std::chrono::nanoseconds::zero());
    const timespec timeout{std::chrono::duration_cast<std::chrono::seconds>(left).count(),
                           left.count() % 1'000'000'000};
    PausePoint::reach("ucx.initiator.sleep");
    std::array<pollfd, 2> waited{{{worker_->fd(), POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}}};
    ppoll(waited.data(), waited.size(), &timeout, nullptr);
    eventfd_t wakeups;
    if (waited[1].revents != 0) eventfd_read(wake_fd_.get(), &wakeups);
}

void Initiator::wake() { eventfd_write(wake_fd_.get(), 1); }

}  // namespace memfabric::ucx
