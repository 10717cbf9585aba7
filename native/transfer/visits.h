// SPDX-License-Identifier: Apache-2.0
//
// Who is inside somebody else's memory right now. Every thread of a process that transfers has a counter, odd while it
// is inside; all of them stand in one memory file that the process shows to the engines it attaches to. An engine that
// ends a registration first changes its page, then waits until every thread that was inside has moved on: after that
// nobody can still be writing. (Both sides use seq_cst: either the visitor sees the change, or the engine the visit.)
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "core/owned_fd.h"
#include "core/shared_mapping.h"
#include "core/status.h"

namespace memfabric {

struct VisitWords {
    struct alignas(64) Seat {
        std::atomic<std::uint64_t> count;  // odd: inside
        std::atomic<std::uint64_t> host;   // whose memory: visit_id of that engine
    };
    static constexpr std::size_t kSeats = 4096;
    alignas(64) std::atomic<std::uint64_t> used;  // seats beyond it were never taken
    std::array<Seat, kSeats> seats;
};

// The visiting side: one page per process. In a forked child it starts anew.
class Visits {
public:
    static Visits& process();

    Status fd(int& shown);  // made on first use; stays ours

    // Marks the calling thread as inside the memory of an engine while it lives. Does not nest. Cost: three stores, one
    // of them seq_cst.
    class Visit {
    public:
        explicit Visit(std::uint64_t host);
        ~Visit();
        Visit(const Visit&) = delete;
        Visit& operator=(const Visit&) = delete;
        bool admitted() const { return seat_ != nullptr; }  // false: more threads than seats

    private:
        VisitWords::Seat* seat_;
    };

private:
    struct SeatKeeper;

    Visits() = default;
    Status open();  // with the lock held
    VisitWords::Seat* take_seat();

    std::mutex mutex_;
    OwnedFd file_;
    SharedMapping mapping_;
    std::array<bool, VisitWords::kSeats> taken_{};

    inline static thread_local VisitWords::Seat* seat_of_thread_ = nullptr;
    inline static thread_local std::uint64_t fork_of_seat_ = 0;
    inline static std::atomic<std::uint64_t> fork_count_{1};
};

// The visited side: a visitor's page.
class VisitorPage {
public:
    static Status map(int fd, VisitorPage& made);

    // False if a thread that was inside the host's memory at the time of the call still was at the deadline, or when
    // the wait was interrupted. `is_gone`
    // is asked while somebody is waited for, and ends the wait with true: the visitor's process is gone.
    bool wait_until_moved_on(std::uint64_t host, std::chrono::steady_clock::time_point deadline,
                             const std::function<bool()>& is_gone) const;

    // Whether that process has the page mapped, as every visitor has until it ends or becomes another program; a
    // process that got the number of a dead one has not. True also if the kernel does not let us see.
    bool is_mapped_by(pid_t pid) const;
    bool is_page_of(const VisitorPage& other) const { return file_number_ == other.file_number_; }

private:
    const VisitWords& words() const { return *reinterpret_cast<const VisitWords*>(mapping_.address()); }

    SharedMapping mapping_;
    std::uint64_t file_number_ = 0;  // the inode: not given away while the file is mapped here
};

inline Visits::Visit::Visit(std::uint64_t host) : seat_(seat_of_thread_) {
    if (seat_ == nullptr || fork_of_seat_ != fork_count_.load(std::memory_order_relaxed)) [[unlikely]] {
        seat_ = process().take_seat();
        if (seat_ == nullptr) return;
    }
    seat_->host.store(host, std::memory_order_release);
    seat_->count.store(seat_->count.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
}

inline Visits::Visit::~Visit() {
    if (seat_ == nullptr) return;
    seat_->count.store(seat_->count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace memfabric
