// SPDX-License-Identifier: Apache-2.0
//
// One move on its way: puts or gets on an endpoint of its own, of which a bounded number is under way. A put is over
// when its source may be changed; that it has arrived is known after a flush, so that a write flushes now and then and
// at its end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "endpoint/address.h"
#include "transports/completion.h"
#include "transports/transport.h"
#include "ucx/abi.h"
#include "ucx/endpoint.h"
#include "ucx/remote_memory.h"

namespace memfabric::ucx {

class UcxTransport;

// Thread contract: `advance` by whoever has the initiator's turn; `cancel`, `done` and `activity` from any thread; the
// rest by the owner, once it is done.
class UcxMove final : public Completion::Work {
public:
    UcxMove(UcxTransport& transport, std::shared_ptr<const RemoteMemory> memory, const Move& move)
        : transport_(transport), memory_(std::move(memory)), move_(move) {}

    // Takes what UCX has done meanwhile, and asks for more. True: something has changed.
    bool advance();
    bool is_over() const { return over_; }
    void set_done() { done_.store(true); }  // the owner may destroy it at once
    Deadline look_again_at() const { return give_up_at_; }

    bool done() const { return done_.load(); }
    void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
    std::uint64_t activity() const { return activity_.load(std::memory_order_relaxed); }  // changes when bytes move

    Outcome outcome();

private:
    struct Operation {
        UcxMove* move;
        std::size_t size_bytes;  // that are in place after it
    };

    bool lease();
    void obey_cancel();
    bool ask();
    void ask_next();
    void ask_flush();
    void asked(abi::Request request, Operation* operation);
    abi::RequestParams begin(std::size_t size_bytes);
    void ended(Operation* operation, abi::Result result);
    void fail_with(abi::Result result);

    bool write() const { return move_.direction == Direction::Write; }
    bool has_more() const { return !stopping_ && piece_ < move_.pieces.size(); }

    UcxTransport& transport_;
    const std::shared_ptr<const RemoteMemory> memory_;  // as it was at the beginning, and covers the move
    const Move move_;
    std::unique_ptr<Endpoint> endpoint_;
    std::size_t piece_ = 0;          // the next one, from
    std::size_t offset_bytes_ = 0;   // there on
    std::size_t asked_bytes_ = 0;    // put or got, or soon
    std::size_t flushed_bytes_ = 0;  // of these, a flush was asked for
    std::size_t moved_bytes_ = 0;
    std::vector<std::unique_ptr<Operation>> operations_;  // all that were ever needed at a time
    std::vector<Operation*> free_;
    Operation* current_ = nullptr;
    std::size_t under_way_ = 0;
    bool stopping_ = false;  // asks for nothing more
    abi::Result failure_ = abi::kOk;
    bool given_up_ = false;
    bool over_ = false;
    std::uint64_t last_answer_ = 0;  // `activity` by then, once it is cancelled
    Deadline give_up_at_ = Deadline::max();
    Deadline give_up_for_good_at_ = Deadline::max();
    std::atomic<bool> cancelled_{false};
    std::atomic<bool> done_{false};
    std::atomic<std::uint64_t> activity_{0};
};

}  // namespace memfabric::ucx
