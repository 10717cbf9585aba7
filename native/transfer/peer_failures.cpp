// SPDX-License-Identifier: Apache-2.0
#include "transfer/peer_failures.h"

#include <algorithm>
#include <utility>

namespace memfabric {

void PeerFailures::listen() {
    const std::lock_guard lock(mutex_);
    listening_ = true;
}

void PeerFailures::report(const std::string& session, const InstanceId& instance) {
    const std::lock_guard lock(mutex_);
    if (!listening_ || closed_ || session.empty() || std::ranges::find(reported_, instance) != reported_.end()) return;
    reported_.push_back(instance);
    if (reported_.size() > kRemembered) reported_.pop_front();
    sessions_.push_back(session);
    changed_.notify_one();
}

bool PeerFailures::wait(std::string& session) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !sessions_.empty(); });
    if (sessions_.empty()) return false;
    session = std::move(sessions_.front());
    sessions_.pop_front();
    return true;
}

void PeerFailures::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
}

}  // namespace memfabric
