// SPDX-License-Identifier: Apache-2.0
#include "transfer/peer_failures.h"

#include <algorithm>
#include <utility>

#include "base/notice.h"

namespace memfabric {

void PeerFailures::listen() {
    const std::lock_guard lock(mutex_);
    listening_ = true;
}

std::uint64_t PeerFailures::begin_link() {
    const std::lock_guard lock(mutex_);
    return ++events_;
}

void PeerFailures::report(const std::string& session, const InstanceId& instance, std::uint64_t began) {
    const std::lock_guard lock(mutex_);
    if (!listening_ || closed_ || session.empty()) return;
    if (const auto last = std::ranges::find(reported_, instance, &Report::instance); last != reported_.end()) {
        if (began < last->at) return;
        reported_.erase(last);
    }
    reported_.push_back({instance, ++events_});
    if (reported_.size() > kRemembered) reported_.pop_front();
    if (std::ranges::find(sessions_, session) != sessions_.end()) return;  // will be told
    if (sessions_.size() == kMostUntold) {
        return notice("nobody takes the ends of peers: that of %s is not told, %zu others wait", session.c_str(),
                      sessions_.size());
    }
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
