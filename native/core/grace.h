// SPDX-License-Identifier: Apache-2.0
//
// Grace periods: who wants to unmap memory first makes it unreachable for newcomers, then waits until everybody who
// may still be using it has left.
//
//     reader: Grace::Guard guard;  look things up; use them;          (any thread, never blocks, nests)
//     writer: take the thing away; Grace::synchronize(); free it;     (not inside a guard: it would wait for itself)
//
// What readers look up must be atomics that both sides access with seq_cst: then either the reader sees that the thing
// is gone, or the writer sees the reader's guard. Cost of a guard: one seq_cst store, one release store, no lock.
#pragma once

#include <atomic>
#include <cstdint>

namespace memfabric {

class Grace {
    struct Seat;  // one per thread that ever held a guard; given back when the thread ends, never freed

public:
    class Guard {
    public:
        Guard();
        ~Guard() {
            if (outermost_) entered().store(0, std::memory_order_release);
        }
        Guard(const Guard&) = delete;
        Guard& operator=(const Guard&) = delete;

        // Leaves and enters again, so that writers need not wait for the whole of a long operation. Everything looked
        // up before must be looked up again. No effect inside another guard.
        void renew();

    private:
        std::atomic<std::uint64_t>& entered();

        Seat* seat_;
        bool outermost_;
    };

    // Returns when every guard that existed at the time of the call has been left or renewed. Spins briefly, then
    // sleeps in growing steps of at most 0.5 ms: readers would pay for a wake-up, writers are rare and can wait.
    static void synchronize();

    // The same in two steps, for writers that must not wait: what was taken away before `begin_period` may be freed
    // once `has_ended` says so.
    static std::uint64_t begin_period();
    static bool has_ended(std::uint64_t period);

private:
    struct alignas(64) Seat {
        std::atomic<std::uint64_t> entered{0};  // the epoch the reader saw when it entered, 0 = not inside
        std::atomic<bool> taken{true};
        Seat* next = nullptr;
    };
    struct SeatKeeper;

    static Seat* take_seat();
    static bool is_inside_since_before(const Seat& seat, std::uint64_t period);
    static void forget_other_threads();  // in a forked child: they are not there any more

    inline static std::atomic<std::uint64_t> epoch_{1};
    inline static std::atomic<Seat*> seats_{nullptr};  // a list that only grows
    inline static thread_local Seat* seat_of_thread_ = nullptr;
};

inline std::atomic<std::uint64_t>& Grace::Guard::entered() { return seat_->entered; }

inline Grace::Guard::Guard() : seat_(seat_of_thread_) {
    if (seat_ == nullptr) [[unlikely]]
        seat_ = take_seat();
    outermost_ = entered().load(std::memory_order_relaxed) == 0;
    if (outermost_) entered().store(epoch_.load(std::memory_order_acquire), std::memory_order_seq_cst);
}

inline void Grace::Guard::renew() {
    if (!outermost_) return;
    entered().store(0, std::memory_order_release);
    entered().store(epoch_.load(std::memory_order_acquire), std::memory_order_seq_cst);
}

}  // namespace memfabric
