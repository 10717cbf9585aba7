// SPDX-License-Identifier: Apache-2.0
//
// The initiator's side of `ServedRanges`: what it has learnt of a target's ranges, and the ways there. A range that has
// gone is noticed when a move fails; it is forgotten then, and asked for again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "transports/routed_batch.h"
#include "transports/transport.h"
#include "ucx/context.h"
#include "ucx/remote_memory.h"
#include "ucx/transport.h"

namespace memfabric::ucx {

// Thread contract: any thread; nothing waits but `learn`, for UCX to begin.
class MF_API RemoteRanges {
public:
    using Kept = std::vector<std::shared_ptr<UcxTransport>>;  // which live until the batch has run

    // `version`: of the target's UCX.
    RemoteRanges(Options options, std::string version) : options_(std::move(options)), version_(std::move(version)) {}

    // All of the move, cut where one range ends and the next begins. False: `unknown` is an address of which nothing is
    // known, and the batch is of no use.
    bool route(const Move& move, RoutedBatch& batch, Kept& kept, std::uint64_t& unknown) const;
    Status learn(const std::string& worker_address, RemoteRegion region);
    void forget(const Kept& failed);

private:
    struct Way {
        std::string worker_address;
        std::vector<RemoteRegion> regions;  // that the transport knows
        std::shared_ptr<UcxTransport> transport;
    };
    struct Place {
        const Way* way = nullptr;
        const RemoteRegion* region = nullptr;
    };

    bool find(std::uint64_t address, Place& place) const;

    const Options options_;
    const std::string version_;
    mutable std::mutex mutex_;  // for the following
    std::vector<Way> ways_;
};

}  // namespace memfabric::ucx
