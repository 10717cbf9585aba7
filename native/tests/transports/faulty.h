// SPDX-License-Identifier: Apache-2.0
//
// A transport that fails the way a test wants it to, around one that works.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "transports/transport.h"

namespace memfabric::tests {

struct Faults {
    std::chrono::milliseconds delay{0};   // before the first byte
    std::size_t fail_at_byte = SIZE_MAX;  // moves this many bytes, then fails
    bool on_another_thread = false;       // ends the move there
    bool stuck = false;                   // moves nothing, and ends only if it is cancelled
    std::size_t part_bytes = 0;           // what its traits say
};

class FaultyTransport final : public Transport {
public:
    FaultyTransport(Transport& inner, Faults faults) : inner_(inner), faults_(faults), traits_(inner.traits()) {
        traits_.synchronous = !faults.on_another_thread;
        traits_.part_bytes = faults.part_bytes;
    }
    ~FaultyTransport() override {
        for (std::thread& thread : threads_) thread.join();
    }

    const Traits& traits() const noexcept override { return traits_; }

    void start(const Move& move, Completion& completion) noexcept override {
        const std::lock_guard lock(mutex_);
        ++started_;
        if (faults_.on_another_thread) {
            threads_.emplace_back([this, move, &completion] { completion.finish(run(move, &completion)); });
        } else {
            completion.finish(run_now(move));
        }
    }

    void cancel(Completion& completion) noexcept override {
        const std::lock_guard lock(mutex_);
        cancelled_.insert(&completion);
        changed_.notify_all();
    }

    int started() const {
        const std::lock_guard lock(mutex_);
        return started_;
    }

private:
    Outcome run(const Move& move, const Completion* completion) {
        {
            std::unique_lock lock(mutex_);
            const auto cancelled = [&] { return cancelled_.contains(completion); };
            if (faults_.stuck) changed_.wait(lock, cancelled);
            if (changed_.wait_for(lock, faults_.delay, cancelled)) {
                cancelled_.erase(completion);
                return {Status::NotStarted, 0, "cancelled"};
            }
        }
        return run_now(move);
    }

    Outcome run_now(const Move& move) {
        std::vector<Piece> allowed;
        std::size_t left_bytes = std::min(faults_.fail_at_byte, move.total_bytes);
        const std::size_t allowed_bytes = left_bytes;
        for (const Piece& piece : move.pieces) {
            const std::size_t taken_bytes = std::min(left_bytes, piece.size_bytes);
            if (taken_bytes != 0) allowed.push_back({piece.target, piece.source, taken_bytes});
            left_bytes -= taken_bytes;
        }
        Completion completion;
        if (allowed_bytes != 0) {
            inner_.start({move.direction, allowed, allowed_bytes}, completion);
            completion.wait_out();
        }
        if (allowed_bytes == move.total_bytes) return completion.outcome();
        return {Status::NotConnected, allowed_bytes, "the line was cut"};
    }

    Transport& inner_;
    const Faults faults_;
    Traits traits_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::set<const Completion*> cancelled_;
    std::vector<std::thread> threads_;
    int started_ = 0;
};

}  // namespace memfabric::tests
