// SPDX-License-Identifier: Apache-2.0
// Access epochs: who is inside somebody else's memory right now. Every thread of a process that transfers, the
// initiator, has a counter that is odd while it is inside; all of them stand in one memory file that the process shows
// to the engines it attaches to, its targets. A target that ends a registration first changes its page, then waits
// until every thread that was inside has moved on: after that nobody can still be writing. (Both sides use seq_cst:
// either the initiator sees the change, or the target the epoch.)
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/fork_guard.h"
#include "base/owned_fd.h"
#include "base/status.h"
#include "memory/memfd.h"

namespace memfabric {

struct EpochWords {
    struct alignas(64) ThreadSlot {
        std::atomic<std::uint64_t> epoch;   // odd: inside
        std::atomic<std::uint64_t> target;  // whose memory: target_id of that engine
    };
    static constexpr std::size_t kSlots = 4096;
    alignas(64) std::atomic<std::uint64_t> used;  // slots beyond it were never taken
    std::array<ThreadSlot, kSlots> slots;
};

// The initiator's side: one page per process. In a forked child it starts anew.
class AccessEpochs {
public:
    static AccessEpochs& process();

    Status fd(int& shown);  // made on first use; stays ours

    // Marks the calling thread as inside the memory of an engine while it lives. Does not nest. Cost: three stores, one
    // of them seq_cst.
    class Epoch {
    public:
        explicit Epoch(std::uint64_t target);
        ~Epoch();
        Epoch(const Epoch&) = delete;
        Epoch& operator=(const Epoch&) = delete;
        bool admitted() const { return slot_ != nullptr; }  // false: more threads than slots

    private:
        EpochWords::ThreadSlot* slot_;
    };

private:
    struct SlotKeeper;

    friend void hold_across_forks<AccessEpochs>();
    AccessEpochs() { hold_across_forks<AccessEpochs>(); }
    void before_fork() { mutex_.lock(); }
    void after_fork() { mutex_.unlock(); }
    void begin_in_child();

    Status open();  // with the lock held
    EpochWords::ThreadSlot* claim_slot();

    std::mutex mutex_;
    OwnedFd file_;
    SharedMapping mapping_;
    std::array<bool, EpochWords::kSlots> taken_{};

    static constinit thread_local EpochWords::ThreadSlot* slot_of_thread_;
    static constinit thread_local std::uint32_t fork_of_slot_;
};

// The target's side: the epochs of one initiator.
class InitiatorEpochs {
public:
    static Status map(int fd, InitiatorEpochs& made);

    // False if a thread that was inside the target's memory at the time of the call still was at the deadline, or
    // when the wait was interrupted. `is_gone` is asked while somebody is waited for, and ends the wait with true: the
    // initiator's process is gone.
    bool wait_until_moved_on(std::uint64_t target, std::chrono::steady_clock::time_point deadline,
                             const std::function<bool()>& is_gone) const;

    // Whether that process has the page mapped, as every initiator has until it ends or becomes another program; a
    // process that got the number of a dead one has not. True also if the kernel does not let us see.
    bool is_mapped_by(pid_t pid) const;
    bool is_page_of(const InitiatorEpochs& other) const { return file_number_ == other.file_number_; }

private:
    const EpochWords& words() const { return *reinterpret_cast<const EpochWords*>(mapping_.address()); }

    SharedMapping mapping_;
    std::uint64_t file_number_ = 0;  // the inode: not given away while the file is mapped here
};

inline AccessEpochs::Epoch::Epoch(std::uint64_t target) : slot_(slot_of_thread_) {
    if (slot_ == nullptr || fork_of_slot_ != ForkGuard::forks_so_far()) [[unlikely]] {
        slot_ = process().claim_slot();
        if (slot_ == nullptr) return;
    }
    slot_->target.store(target, std::memory_order_release);
    slot_->epoch.store(slot_->epoch.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
}

inline AccessEpochs::Epoch::~Epoch() {
    if (slot_ == nullptr) return;
    slot_->epoch.store(slot_->epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace memfabric
