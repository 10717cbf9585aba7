// SPDX-License-Identifier: Apache-2.0
//
// The memory an engine's user has registered: any start, any size, overlaps allowed. Remembers it before the engine is
// initialised and publishes it from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "base/status.h"
#include "copy/request.h"
#include "transfer/registrations/registration_page.h"
#include "transfer/registrations/segment_offers.h"

namespace memfabric {

// Thread contract: any thread.
class Registrations {
public:
    // All or nothing: every byte of every range must be readable in this process. The same start again keeps the larger
    // end.
    Status add(std::span<const std::uint64_t> starts, std::span<const std::uint64_t> sizes_bytes);

    // Ends every registration that starts at one of the addresses; NotExist, and nothing changed, if one has none.
    // Peers may still be inside: until `settle` says that they have left, the same addresses can be removed again.
    Status remove(std::span<const std::uint64_t> starts);
    void settle(std::span<const std::uint64_t> starts);
    bool remove_inside(std::uint64_t start, std::uint64_t end);  // whatever touches the range; false if nothing did
    bool has(std::uint64_t start) const;
    std::size_t count() const;
    std::vector<Extent> list() const;

    // From now on changes are published there; nullptr = nowhere. Memory that peers can map is offered to them before
    // they can see that it is registered.
    void show_on(RegistrationPage* page, std::shared_ptr<SegmentOffers> offers);
    void clear();

private:
    void publish();
    std::vector<Interval> merged() const;

    mutable std::mutex mutex_;
    std::map<std::uint64_t, std::uint64_t> ends_;  // start → end
    std::set<std::uint64_t> unsettled_;            // starts that were removed and not settled yet
    RegistrationPage* page_ = nullptr;
    std::shared_ptr<SegmentOffers> offers_;
};

}  // namespace memfabric
