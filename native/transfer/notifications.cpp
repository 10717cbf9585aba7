// SPDX-License-Identifier: Apache-2.0
#include "transfer/notifications.h"

#include <algorithm>

#include "base/last_error.h"
#include "base/limits.h"

namespace memfabric {

NotifyVerdict Notifications::put(const std::string& session, Bytes data) {
    const std::lock_guard lock(mutex_);
    if (closed_) return NotifyVerdict::Closed;
    if (queue_.size() >= kMaxQueuedNotifications) return NotifyVerdict::TooMany;
    if (data_bytes_ + data.size() > kMaxQueuedNotificationBytes) return NotifyVerdict::TooManyBytes;
    data_bytes_ += data.size();
    queue_.push_back({session, std::move(data)});
    if (given_) changed_.notify_one();
    wake_locked();
    return NotifyVerdict::Queued;
}

Status Notifications::take(std::size_t most, std::vector<Notification>& taken) {
    taken.clear();
    if (fork_guard_.in_forked_child()) return Status::Ok;
    const std::lock_guard lock(mutex_);
    if (given_) {
        return fail(Status::ResourceInUse,
                    "the notification callback takes this engine's notifications; set_notification_callback(None) "
                    "leaves them to others");
    }
    const std::size_t count = std::min(most, queue_.size());
    taken.reserve(count);
    while (taken.size() < count) taken.push_back(pop());
    return Status::Ok;
}

bool Notifications::wait(Notification& taken) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || (given_ && !queue_.empty()); });
    if (!given_ || queue_.empty()) return false;
    taken = pop();
    return true;
}

void Notifications::give_to_callback(bool given) {
    if (fork_guard_.in_forked_child()) return;
    const std::lock_guard lock(mutex_);
    given_ = given;
    changed_.notify_all();
    if (given) wake_locked();
}

void Notifications::listen(std::shared_ptr<Notifier> notifier, std::uint64_t token) {
    if (fork_guard_.in_forked_child()) return notifier->notify(token);
    const std::lock_guard lock(mutex_);
    if (closed_ || given_ || !queue_.empty()) return notifier->notify(token);
    listeners_.emplace_back(std::move(notifier), token);
}

void Notifications::wake() {
    if (fork_guard_.in_forked_child()) return;
    const std::lock_guard lock(mutex_);
    wake_locked();
}

bool Notifications::closed() const {
    if (fork_guard_.in_forked_child()) return true;
    const std::lock_guard lock(mutex_);
    return closed_;
}

void Notifications::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    wake_locked();
}

// With the lock held, as the next one.
Notification Notifications::pop() {
    Notification first = std::move(queue_.front());
    queue_.pop_front();
    data_bytes_ -= first.data.size();
    return first;
}

void Notifications::wake_locked() {
    for (const auto& [notifier, token] : listeners_) notifier->notify(token);
    listeners_.clear();
}

}  // namespace memfabric
