// SPDX-License-Identifier: Apache-2.0
#include "ucx/remote_ranges.h"

#include <algorithm>
#include <utility>

namespace memfabric::ucx {

// `place` is where the last one was: pieces that follow each other often lie in one range.
bool RemoteRanges::find(std::uint64_t address, Place& place) const {
    if (place.region != nullptr && place.region->contains(address)) return true;
    for (const Way& way : ways_) {
        for (const RemoteRegion& region : way.regions) {
            if (!region.contains(address)) continue;
            place = {&way, &region};
            return true;
        }
    }
    return false;
}

bool RemoteRanges::route(const Move& move, RoutedBatch& batch, Kept& kept, std::uint64_t& unknown) const {
    const std::lock_guard lock(mutex_);
    Place place;
    for (std::size_t i = 0; i < move.pieces.size(); ++i) {
        const Piece& piece = move.pieces[i];
        for (std::size_t offset = 0; offset < piece.size_bytes;) {
            const std::uint64_t address = remote_of(move.direction, piece) + offset;
            if (!find(address, place)) {
                unknown = address;
                return false;
            }
            const std::size_t size_bytes = std::min(piece.size_bytes - offset, place.region->end() - address);
            batch.add(*place.way->transport, move.direction, {piece.target + offset, piece.source + offset, size_bytes},
                      move.pieces.size() - i - 1);
            if (std::ranges::find(kept, place.way->transport) == kept.end()) kept.push_back(place.way->transport);
            offset += size_bytes;
        }
    }
    return true;
}

Status RemoteRanges::learn(const std::string& worker_address, RemoteRegion region) {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(ways_, worker_address, &Way::worker_address);
    if (known == ways_.end()) {
        std::unique_ptr<UcxTransport> opened;
        const Status status = UcxTransport::open({worker_address, version_, {region}}, options_, opened);
        if (status != Status::Ok) return status;
        ways_.push_back({worker_address, {std::move(region)}, std::move(opened)});
        return Status::Ok;
    }
    const bool is_known = std::ranges::any_of(known->regions, [&](const RemoteRegion& one) {
        return one.base == region.base && one.size_bytes == region.size_bytes;
    });
    if (is_known) return Status::Ok;  // two have asked for it
    known->regions.push_back(std::move(region));
    known->transport->grow({worker_address, version_, known->regions});
    return Status::Ok;
}

void RemoteRanges::forget(const Kept& failed) {
    std::vector<Way> forgotten;  // ends without the lock
    const std::lock_guard lock(mutex_);
    const auto gone = std::ranges::partition(
        ways_, [&](const Way& way) { return std::ranges::find(failed, way.transport) == failed.end(); });
    std::ranges::move(gone, std::back_inserter(forgotten));
    ways_.erase(gone.begin(), gone.end());
}

}  // namespace memfabric::ucx
