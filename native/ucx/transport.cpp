// SPDX-License-Identifier: Apache-2.0
#include "ucx/transport.h"

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "ucx/buffers.h"
#include "ucx/move.h"

namespace memfabric::ucx {
namespace {

constexpr std::size_t kMostEndpoints = 16;
constexpr std::size_t kMostQuietEndpoints = 4;
constexpr std::chrono::seconds kRetryPause{1};

UcxMove& ucx_move_of(Completion& completion) { return static_cast<UcxMove&>(*completion.work()); }

std::string outside(const RemoteMemory& memory, std::uint64_t address, std::size_t size_bytes) {
    char text[128];
    std::snprintf(text, sizeof text,
                  "%zu bytes at 0x%" PRIx64 " are not all inside the memory that is registered there:", size_bytes,
                  address);
    std::string sentence = text;
    for (const RemoteRegion& region : memory.regions) {
        std::snprintf(text, sizeof text, "%s %" PRIu64 " bytes at 0x%" PRIx64,
                      &region == &memory.regions.front() ? "" : ",", region.size_bytes, region.base);
        sentence += text;
    }
    return sentence;
}

}  // namespace

Status UcxTransport::open(RemoteMemory memory, const Options& options, std::unique_ptr<UcxTransport>& opened) {
    std::unique_ptr<UcxTransport> made(new UcxTransport(std::move(memory)));
    if (const Status status = Runtime::acquire(options, made->runtime_); status != Status::Ok) return status;
    if (const Status status = made->runtime_->initiator(made->initiator_); status != Status::Ok) return status;
    opened = std::move(made);
    return Status::Ok;
}

UcxTransport::~UcxTransport() {
    for (std::unique_ptr<Endpoint>& endpoint : quiet_) {
        if (runtime_->in_forked_child()) {
            static_cast<void>(endpoint.release());  // the parent's
        } else {
            initiator_->retire(std::move(endpoint));
        }
    }
}

const Transport::Traits& UcxTransport::traits() const noexcept {
    static constexpr Traits kTraits{
        .route = Route::Ucx, .synchronous = false, .peer_is_idle = false, .addresses_are_ours = false, .part_bytes = 0};
    return kTraits;
}

// Begins at once: of a batch to several peers, all are under way before one is waited for.
void UcxTransport::start(const Move& move, Completion& completion) noexcept {
    std::shared_ptr<const RemoteMemory> memory = this->memory();
    if (refuse(*memory, move, completion)) return;
    auto work = std::make_unique<UcxMove>(*this, std::move(memory), move);
    UcxMove& begun = *work;
    completion.set_work(std::move(work));
    initiator_->submit(begun);
    if (begun.done()) static_cast<void>(progress(completion, Deadline::min()));
}

// What would not fail by itself: nothing of it is moved.
bool UcxTransport::refuse(const RemoteMemory& memory, const Move& move, Completion& completion) const {
    if (runtime_->in_forked_child()) {
        completion.finish({Status::NotConnected, 0, kForkedChild});
        return true;
    }
    for (const Piece& piece : move.pieces) {
        const std::uint64_t remote = remote_of(move.direction, piece);
        if (memory.covers(remote, piece.size_bytes)) continue;
        completion.finish({Status::InvalidParam, 0, outside(memory, remote, piece.size_bytes)});
        return true;
    }
    if (buffers_are_accessible(move)) return false;
    completion.finish({Status::InvalidParam, 0, "a buffer of this process is not mapped, or not for this direction"});
    return true;
}

bool UcxTransport::progress(Completion& completion, Deadline until) noexcept {
    if (completion.done()) return true;
    UcxMove& move = ucx_move_of(completion);
    const bool moved = initiator_->drive(move, until);
    if (!move.done()) return moved;
    Outcome outcome = move.outcome();
    completion.set_work(nullptr);
    completion.finish(std::move(outcome));
    return true;
}

void UcxTransport::cancel(Completion& completion) noexcept {
    if (completion.done()) return;
    ucx_move_of(completion).cancel();
    initiator_->look_again();
}

// With the initiator's turn, like `give_back`. The one that was used last: the others may be closed one day.
std::unique_ptr<Endpoint> UcxTransport::lease() {
    const std::lock_guard lock(mutex_);
    while (!quiet_.empty()) {
        std::unique_ptr<Endpoint> endpoint = std::move(quiet_.back());
        quiet_.pop_back();
        if (endpoint->failure() != abi::kOk) {  // the target has gone meanwhile
            initiator_->retire(std::move(endpoint));
            continue;
        }
        ++leased_;
        return endpoint;
    }
    if (leased_ >= kMostEndpoints) return nullptr;
    ++leased_;
    return connect();
}

// UCX keeps what an attempt has cost that fails at once (a socket, over TCP) until its worker ends; so they are rare.
std::unique_ptr<Endpoint> UcxTransport::connect() {
    auto endpoint = std::make_unique<Endpoint>(initiator_->worker());
    const auto now = std::chrono::steady_clock::now();
    if (now < try_again_at_) {
        endpoint->fail(refusal_);
        return endpoint;
    }
    endpoint->open(*memory_);
    if (!endpoint->is_open()) {
        refusal_ = endpoint->failure();
        try_again_at_ = now + kRetryPause;
    }
    return endpoint;
}

void UcxTransport::give_back(std::unique_ptr<Endpoint> endpoint) {
    const std::lock_guard lock(mutex_);
    --leased_;
    if (endpoint->is_closing()) return;
    if (quiet_.size() < kMostQuietEndpoints && endpoint->failure() == abi::kOk) {
        quiet_.push_back(std::move(endpoint));
    } else {
        initiator_->retire(std::move(endpoint));
    }
}

void UcxTransport::free_request(abi::Request request) const {
    runtime_->context().library().calls().request_free(request);
}

std::string UcxTransport::explain(abi::Result result) const {
    const Library& library = runtime_->context().library();
    const std::string what = "the connection to it cannot be made, or was lost: " + library.text(result);
    const std::string version = memory()->version;
    if (version != library.version()) {
        return what + "; it has UCX " + version + " and this process " + library.version() +
               ", which may not understand each other: install the same";
    }
    return what + " (UCX " + library.version() + "); its process has ended, or the network is down";
}

void UcxTransport::grow(RemoteMemory memory) {
    auto grown = std::make_shared<const RemoteMemory>(std::move(memory));
    const std::lock_guard lock(mutex_);
    memory_.swap(grown);
}

std::shared_ptr<const RemoteMemory> UcxTransport::memory() const {
    const std::lock_guard lock(mutex_);
    return memory_;
}

std::size_t UcxTransport::endpoints() const {
    const std::lock_guard lock(mutex_);
    return quiet_.size() + leased_;
}

}  // namespace memfabric::ucx
