// SPDX-License-Identifier: Apache-2.0
#include "transfer/peers.h"

#include <utility>

#include "sync/rcu.h"

namespace memfabric {

Peers::Peers() : map_(new Map) {}

Peers::~Peers() { delete map_.load(); }

void Peers::put(std::shared_ptr<Peer> peer) {
    const std::lock_guard lock(writers_);
    auto next = std::make_unique<Map>();
    for (const auto& [session, known] : *map_.load(std::memory_order_relaxed)) {
        if (known->usable()) next->emplace(session, known);
    }
    (*next)[peer->session] = std::move(peer);
    publish(std::move(next));
}

void Peers::abandon_in_child() {
    delete map_.exchange(new Map);
    retired_ = {};
}

void Peers::clear() {
    rcu::RetireList all;  // freed after everybody has left
    {
        const std::lock_guard lock(writers_);
        publish(std::make_unique<Map>());
        all = std::exchange(retired_, {});
    }
    rcu::synchronize();
}

// With the lock held.
void Peers::publish(std::unique_ptr<const Map> map) {
    const Map* before = map_.exchange(map.release(), std::memory_order_seq_cst);
    retired_.put(std::shared_ptr<const Map>(before));
}

}  // namespace memfabric
