// SPDX-License-Identifier: Apache-2.0
//
// A copy with sides that are not mapped here: each piece goes by the transport of its far side. Between two far sides
// it goes through memory of ours.
#pragma once

#include <chrono>
#include <vector>

#include "copy/request.h"
#include "memory/slot_table.h"
#include "transports/routed_batch.h"

namespace memfabric {

// Thread contract: one thread. The sides are pinned until `run` has returned.
class RoutedCopy {
public:
    void add(const Piece& piece, const Side& source, const Side& target);
    void add(const Rectangle& rectangle, const Side& source, const Side& target);  // row by row

    // As RoutedBatch::run.
    Outcome run(const RoutedBatch::MayGoOn& may_go_on, std::chrono::nanoseconds stall_limit) const;
    std::size_t total_bytes() const { return total_bytes_; }
    Route route() const;  // for counting: the way that leads out of this process

private:
    struct Staged {
        Piece piece;
        Transport* from;
        Transport* to;
    };

    Outcome run_staged(const Staged& staged, std::vector<std::byte>& stage, const RoutedBatch::MayGoOn& may_go_on,
                       std::chrono::nanoseconds stall_limit) const;

    RoutedBatch batch_;
    std::vector<Staged> staged_;
    std::size_t total_bytes_ = 0;
};

}  // namespace memfabric
