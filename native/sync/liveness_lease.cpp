// SPDX-License-Identifier: Apache-2.0
#include "sync/liveness_lease.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>

#include "base/blocked_signals.h"
#include "base/last_error.h"

namespace memfabric {

Status LivenessLease::start(std::atomic<std::uint32_t>& word, std::unique_ptr<LivenessLease>& started) {
    std::unique_ptr<LivenessLease> lease(new LivenessLease(word));
    try {
        const BlockedSignals blocked;
        lease->thread_ = std::thread([raw = lease.get()] { raw->hold(); });
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "cannot start the thread that holds the engine's life word: %s", error.what());
    }
    lease->holding_.wait(false);
    started = std::move(lease);
    return Status::Ok;
}

LivenessLease::~LivenessLease() {
    if (fork_guard_.in_forked_child()) {
        ForkGuard::abandon(thread_);
        return;
    }
    word_.store(0, std::memory_order_seq_cst);
    stopping_.store(true);
    stopping_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void LivenessLease::hold() {
    pthread_setname_np(pthread_self(), "mf-lease");
    // The list has one entry; the kernel finds the word at a distance from it. This replaces the C library's list for
    // this thread, which therefore must not own robust mutexes: it owns nothing.
    robust_list entry{};
    robust_list_head head{};
    head.list.next = &entry;
    entry.next = &head.list;
    head.futex_offset = reinterpret_cast<char*>(&word_) - reinterpret_cast<char*>(&entry);
    const bool guarded = syscall(SYS_set_robust_list, &head, sizeof head) == 0;
    const auto tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
    word_.store(guarded ? tid : FUTEX_TID_MASK, std::memory_order_seq_cst);
    holding_.store(true);
    holding_.notify_all();
    stopping_.wait(false);
    if (guarded) {
        head.list.next = &head.list;
        syscall(SYS_set_robust_list, nullptr, sizeof head);
    }
}

}  // namespace memfabric
