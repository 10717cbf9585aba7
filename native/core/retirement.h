// SPDX-License-Identifier: Apache-2.0
//
// Things that readers may still be using: kept until their grace period has ended, without waiting for it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/grace.h"

namespace memfabric {

// Not thread-safe: used under its owner's lock.
class Retirement {
public:
    // After the thing was made unreachable. Frees what can be freed by now.
    void put(std::shared_ptr<const void> thing) {
        things_.push_back({Grace::begin_period(), std::move(thing)});
        collect();
    }

    bool collect() {  // true if nothing is left
        std::erase_if(things_, [](const Retired& one) { return Grace::has_ended(one.period); });
        return things_.empty();
    }

private:
    struct Retired {
        std::uint64_t period;
        std::shared_ptr<const void> thing;
    };
    std::vector<Retired> things_;
};

}  // namespace memfabric
