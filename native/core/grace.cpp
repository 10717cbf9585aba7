// SPDX-License-Identifier: Apache-2.0
#include "core/grace.h"

#include <pthread.h>

#include "core/backoff.h"

namespace memfabric {

// Gives the seat back when the thread ends. A guard in a still later thread-local destructor takes a new seat, which is
// then kept forever: 64 bytes, and harmless.
struct Grace::SeatKeeper {
    ~SeatKeeper() {
        Seat* seat = seat_of_thread_;
        seat_of_thread_ = nullptr;
        seat->taken.store(false, std::memory_order_release);
    }
};

Grace::Seat* Grace::take_seat() {
    static const int fork_handler_installed = pthread_atfork(nullptr, nullptr, forget_other_threads);
    static_cast<void>(fork_handler_installed);

    Seat* seat = seats_.load(std::memory_order_acquire);
    for (; seat != nullptr; seat = seat->next) {
        bool taken = false;
        if (seat->taken.compare_exchange_strong(taken, true, std::memory_order_acquire)) break;
    }
    if (seat == nullptr) {
        seat = new Seat;
        seat->next = seats_.load(std::memory_order_relaxed);
        while (!seats_.compare_exchange_weak(seat->next, seat, std::memory_order_seq_cst)) {
        }
    }
    seat_of_thread_ = seat;
    thread_local SeatKeeper keeper;
    static_cast<void>(keeper);
    return seat;
}

void Grace::forget_other_threads() {
    for (Seat* seat = seats_.load(std::memory_order_acquire); seat != nullptr; seat = seat->next) {
        if (seat == seat_of_thread_) continue;
        seat->entered.store(0, std::memory_order_relaxed);
        seat->taken.store(false, std::memory_order_relaxed);
    }
}

void Grace::synchronize() {
    const std::uint64_t period = begin_period();
    for (Seat* seat = seats_.load(std::memory_order_seq_cst); seat != nullptr; seat = seat->next) {
        Backoff backoff;
        while (is_inside_since_before(*seat, period)) backoff.wait();
    }
}

std::uint64_t Grace::begin_period() { return epoch_.fetch_add(1, std::memory_order_seq_cst) + 1; }

bool Grace::has_ended(std::uint64_t period) {
    for (Seat* seat = seats_.load(std::memory_order_seq_cst); seat != nullptr; seat = seat->next) {
        if (is_inside_since_before(*seat, period)) return false;
    }
    return true;
}

bool Grace::is_inside_since_before(const Seat& seat, std::uint64_t period) {
    const std::uint64_t entered = seat.entered.load(std::memory_order_seq_cst);
    return entered != 0 && entered < period;
}

}  // namespace memfabric
