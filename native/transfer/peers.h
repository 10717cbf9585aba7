// SPDX-License-Identifier: Apache-2.0
//
// The peers of one engine by their session's name. Looked up before every transfer, changed when somebody is dialled.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "sync/rcu.h"
#include "transfer/peer.h"

namespace memfabric {

// Thread contract: any thread. `find` never blocks; what it returns lives until the caller's rcu::ReadGuard ends.
class Peers {
public:
    Peers();
    ~Peers();
    Peers(const Peers&) = delete;
    Peers& operator=(const Peers&) = delete;

    Peer* find(std::string_view session) const {
        const Map& map = *map_.load(std::memory_order_seq_cst);
        const auto found = map.find(session);
        return found == map.end() ? nullptr : found->second.get();
    }

    void put(std::shared_ptr<Peer> peer);  // in the place of an earlier one; peers that are gone are dropped
    void abandon_in_child();               // nobody else is here to wait for, and no lock may be waited for
    void clear();                          // waits until no transfer can still use one

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    using Map = std::unordered_map<std::string, std::shared_ptr<Peer>, Hash, std::equal_to<>>;

    void publish(std::unique_ptr<const Map> map);

    std::mutex writers_;
    std::atomic<const Map*> map_;
    rcu::RetireList retired_;
};

}  // namespace memfabric
