// SPDX-License-Identifier: Apache-2.0
#include "sync/liveness_lease.h"

#include <pthread.h>

#include <system_error>

#include "base/blocked_signals.h"
#include "base/last_error.h"
#include "sync/robust_futex.h"

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
    RobustFutex robust(word_);
    const bool kernel_tells = robust.hold();
    if (!kernel_tells) word_.store(FUTEX_TID_MASK, std::memory_order_seq_cst);  // held, but by nobody in particular
    holding_.store(true);
    holding_.notify_all();
    stopping_.wait(false);
    if (kernel_tells) robust.let_go();
}

}  // namespace memfabric
