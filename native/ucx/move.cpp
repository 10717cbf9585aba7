// SPDX-License-Identifier: Apache-2.0
#include "ucx/move.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "ucx/transport.h"

namespace memfabric::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kOperationBytes = std::size_t{1} << 20;  // of one put or get: what can be seen to move
constexpr std::size_t kFlushBytes = std::size_t{2} << 20;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // under way
constexpr std::size_t kMostOperations = 256;
// For a move that was ended early: kFarewell until the target's next answer, and this for all of them.
constexpr std::chrono::seconds kLongestFarewell{5};

}  // namespace

bool UcxMove::advance() {
    if (over_) return true;
    const std::uint64_t before = activity();
    if (endpoint_ == nullptr && !lease()) return over_;
    obey_cancel();
    if (const abi::Result result = failure_ != abi::kOk ? failure_ : endpoint_->failure(); result != abi::kOk) {
        fail_with(result);
    }
    bool changed = false;
    while (ask()) changed = true;
    const bool ends = under_way_ == 0 && !has_more() && failure_ == abi::kOk && !endpoint_->is_closing();
    if (ends || (under_way_ == 0 && endpoint_->is_closed())) {
        over_ = true;
        transport_.give_back(std::move(endpoint_));
    }
    return changed || over_ || activity() != before;
}

// False: there are enough, wait for one; or it is over.
bool UcxMove::lease() {
    if (cancelled_.load(std::memory_order_relaxed)) {
        over_ = stopping_ = true;
        return false;
    }
    endpoint_ = transport_.lease();
    return endpoint_ != nullptr;
}

// What is under way may end well as long as answers come.
void UcxMove::obey_cancel() {
    const auto now = Clock::now();
    if (!stopping_ && cancelled_.load(std::memory_order_relaxed)) {
        stopping_ = true;
        last_answer_ = activity();
        give_up_at_ = now + kFarewell;
        give_up_for_good_at_ = now + kLongestFarewell;
    }
    if (give_up_at_ == Deadline::max() || endpoint_->is_closing()) return;
    if (last_answer_ != activity()) {
        last_answer_ = activity();
        give_up_at_ = std::min(now + kFarewell, give_up_for_good_at_);
    }
    if (now < give_up_at_) return;
    given_up_ = true;
    endpoint_->begin_close();
}

// Everything asked for ends, too, once the endpoint is closed.
void UcxMove::fail_with(abi::Result result) {
    stopping_ = true;
    if (failure_ == abi::kOk && !given_up_) failure_ = result;
    endpoint_->begin_close();
}

// The next operation, if there is one and it may begin. False: nothing to do now.
bool UcxMove::ask() {
    if (endpoint_->is_closing() || under_way_ >= kMostOperations) return false;
    const bool flush_now =
        write() && asked_bytes_ > flushed_bytes_ && (asked_bytes_ - flushed_bytes_ >= kFlushBytes || !has_more());
    if (flush_now) {
        ask_flush();
        return true;
    }
    if (!has_more() || asked_bytes_ - moved_bytes_ >= kMostBytes) return false;
    ask_next();
    return true;
}

void UcxMove::ask_next() {
    const Piece& piece = move_.pieces[piece_];
    const std::uint64_t remote = remote_of(move_.direction, piece) + offset_bytes_;
    const std::size_t region = memory_->region_of(remote);
    const std::size_t size_bytes = std::min({piece.size_bytes - offset_bytes_, kOperationBytes,
                                             static_cast<std::size_t>(memory_->regions[region].end() - remote)});
    void* local = reinterpret_cast<void*>(local_of(move_.direction, piece) + offset_bytes_);
    offset_bytes_ += size_bytes;
    asked_bytes_ += size_bytes;
    if (offset_bytes_ == piece.size_bytes) {
        ++piece_;
        offset_bytes_ = 0;
    }
    const abi::RequestParams params = begin(write() ? 0 : size_bytes);
    asked(write() ? endpoint_->put(local, size_bytes, remote, *memory_, region, params)
                  : endpoint_->get(local, size_bytes, remote, *memory_, region, params),
          current_);
}

void UcxMove::ask_flush() {
    const abi::RequestParams params = begin(asked_bytes_ - flushed_bytes_);
    flushed_bytes_ = asked_bytes_;
    asked(endpoint_->flush(params), current_);
}

abi::RequestParams UcxMove::begin(std::size_t size_bytes) {
    if (free_.empty()) {
        operations_.push_back(std::make_unique<Operation>());
        free_.push_back(operations_.back().get());
    }
    current_ = free_.back();
    free_.pop_back();
    *current_ = {this, size_bytes};
    ++under_way_;
    abi::RequestParams params{};
    params.field_mask = abi::RequestParams::kCallback | abi::RequestParams::kUserData;
    params.user_data = current_;
    params.callback = [](abi::Request request, abi::Result result, void* user_data) {
        auto* operation = static_cast<Operation*>(user_data);
        UcxMove& move = *operation->move;
        move.transport_.free_request(request);
        move.ended(operation, result);
    };
    return params;
}

// An operation that is over at once has no request, and its callback is not called.
void UcxMove::asked(abi::Request request, Operation* operation) {
    if (request != nullptr && !abi::is_failure(request)) return;
    ended(operation, abi::failure_of(request));
}

void UcxMove::ended(Operation* operation, abi::Result result) {
    --under_way_;
    free_.push_back(operation);
    activity_.fetch_add(1, std::memory_order_relaxed);
    if (result == abi::kOk) {
        moved_bytes_ += operation->size_bytes;
    } else if (failure_ == abi::kOk && !given_up_) {
        failure_ = result;
        stopping_ = true;
    }
}

Outcome UcxMove::outcome() {
    Outcome outcome{Status::Ok, moved_bytes_, {}};
    if (failure_ == abi::kOk && moved_bytes_ == move_.total_bytes) return outcome;
    outcome.may_have_touched_more = write() && asked_bytes_ != moved_bytes_;
    if (failure_ != abi::kOk) {
        outcome.status = Status::NotConnected;
        outcome.reason = transport_.explain(failure_);
    } else {
        outcome.status = Status::NotStarted;
        outcome.reason =
            given_up_ ? "it was ended early, and the target did not say how far it came" : "it was ended early";
    }
    return outcome;
}

}  // namespace memfabric::ucx
