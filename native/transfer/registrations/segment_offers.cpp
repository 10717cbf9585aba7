// SPDX-License-Identifier: Apache-2.0
#include "transfer/registrations/segment_offers.h"

#include <algorithm>
#include <array>
#include <utility>

namespace memfabric {

void SegmentOffers::show(std::span<const ExportedRange> ranges) {
    const std::lock_guard lock(mutex_);
    bool news = false;
    for (const ExportedRange& range : ranges) {
        if (!shown_.emplace(range.id, range).second) continue;
        for (auto& [key, initiator] : initiators_) initiator.queue.push_back(range);
        news = true;
    }
    if (!news) return;
    for (auto& [key, initiator] : initiators_) send_and_tell(initiator);
}

void SegmentOffers::withdraw(std::uint32_t id) {
    const std::lock_guard lock(mutex_);
    if (shown_.erase(id) == 0) return;
    for (auto& [key, initiator] : initiators_) {
        const auto waiting = std::ranges::find(initiator.queue, id, &ExportedRange::id);
        if (waiting != initiator.queue.end()) {
            waiting->file.reset();  // it never learns more than that there was one: initiators count what they get
        } else {
            initiator.queue.push_back({id, 0, 0, 0, nullptr});
        }
        send_and_tell(initiator);
    }
}

bool SegmentOffers::admit(std::shared_ptr<Link> link, const InstanceId& instance, const Secret& data_secret,
                          int registrations_fd) {
    const std::lock_guard lock(mutex_);
    Initiator& initiator = initiators_[link.get()];
    initiator.link = link;
    initiator.accepted = {instance, static_cast<std::uint32_t>(shown_.size()), data_secret};
    initiator.registrations_fd = registrations_fd;
    for (const auto& [id, range] : shown_) initiator.queue.push_back(range);
    if (send_and_tell(initiator) != Sending::Failed) return true;
    initiators_.erase(link.get());
    return false;
}

void SegmentOffers::flush(const Link& link) {
    const std::lock_guard lock(mutex_);
    if (crowded_) return;  // a send that fails for that makes room, too: whoever tried at once again would never rest
    if (const auto found = initiators_.find(&link); found != initiators_.end()) send_and_tell(found->second);
}

void SegmentOffers::dismiss(const Link& link) {
    const std::lock_guard lock(mutex_);
    initiators_.erase(&link);
}

bool SegmentOffers::retry() {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(crowded_, false)) return false;
    for (auto& [key, initiator] : initiators_) crowded_ |= send_queued(initiator) == Sending::Crowded;
    return crowded_;
}

void SegmentOffers::wake_when_crowded(std::shared_ptr<Endpoint> endpoint) {
    const std::lock_guard lock(mutex_);
    endpoint_ = std::move(endpoint);
}

// With the lock held, as the next one.
Sending SegmentOffers::send_and_tell(Initiator& initiator) {
    const Sending sending = send_queued(initiator);
    if (sending == Sending::Crowded && !std::exchange(crowded_, true) && endpoint_ != nullptr) endpoint_->wake();
    return sending;
}

// As much as the socket takes. An initiator that is gone takes nothing, and is dismissed soon.
Sending SegmentOffers::send_queued(Initiator& initiator) {
    if (initiator.registrations_fd >= 0) {
        const Sending sending =
            initiator.link->send(encode(initiator.accepted), std::array{initiator.registrations_fd});
        if (sending != Sending::Sent) return sending;
        initiator.registrations_fd = -1;
    }
    for (; !initiator.queue.empty(); initiator.queue.pop_front()) {
        const ExportedRange& range = initiator.queue.front();
        const Sending sending =
            range.file == nullptr
                ? initiator.link->send(encode(Withdrawn{range.id}))
                : initiator.link->send(
                      encode(Offered{range.id, range.start, range.end - range.start, range.file_offset}),
                      std::array{range.file->get()});
        if (sending != Sending::Sent) return sending;
    }
    return Sending::Sent;
}

}  // namespace memfabric
