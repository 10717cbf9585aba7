// SPDX-License-Identifier: Apache-2.0
#include "transfer/segment_offers.h"

#include <algorithm>
#include <array>

#include "transfer/packets.h"

namespace memfabric {

void SegmentOffers::show(std::span<const SharedRange> ranges) {
    const std::lock_guard lock(mutex_);
    bool news = false;
    for (const SharedRange& range : ranges) {
        if (!shown_.emplace(range.id, range).second) continue;
        for (auto& [link, queue] : guests_) queue.push_back(range);
        news = true;
    }
    if (!news) return;
    for (auto& [link, queue] : guests_) send_queued(link, queue);
}

void SegmentOffers::withdraw(std::uint32_t id) {
    const std::lock_guard lock(mutex_);
    if (shown_.erase(id) == 0) return;
    for (auto& [link, queue] : guests_) {
        const auto waiting = std::ranges::find(queue, id, &SharedRange::id);
        if (waiting != queue.end()) {
            waiting->file.reset();  // it never learns more than that there was one: guests count what they get
        } else {
            queue.push_back({id, 0, 0, 0, nullptr});
        }
        send_queued(link, queue);
    }
}

bool SegmentOffers::admit(int link, const InstanceId& instance, int registrations_fd) {
    const std::lock_guard lock(mutex_);
    const Accepted accepted{instance, static_cast<std::uint32_t>(shown_.size())};
    if (!send_packet(link, encode(accepted), std::array{registrations_fd})) return false;
    Queue& queue = guests_[link];
    for (const auto& [id, range] : shown_) queue.push_back(range);
    send_queued(link, queue);
    return true;
}

void SegmentOffers::flush(int link) {
    const std::lock_guard lock(mutex_);
    if (const auto guest = guests_.find(link); guest != guests_.end()) send_queued(link, guest->second);
}

void SegmentOffers::dismiss(int link) {
    const std::lock_guard lock(mutex_);
    guests_.erase(link);
}

// As much as the socket takes. A guest that is gone takes nothing, and is dismissed soon.
void SegmentOffers::send_queued(int link, Queue& queue) {
    for (; !queue.empty(); queue.pop_front()) {
        const SharedRange& range = queue.front();
        const bool sent =
            range.file == nullptr
                ? send_packet(link, encode(Withdrawn{range.id}), {})
                : send_packet(link, encode(Offered{range.id, range.start, range.end - range.start, range.file_offset}),
                              std::array{range.file->get()});
        if (!sent) return;
    }
}

}  // namespace memfabric
