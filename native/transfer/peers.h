// SPDX-License-Identifier: Apache-2.0
//
// The engines of other processes (or of this one) that an engine is attached to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "endpoint/frames.h"
#include "endpoint/link.h"
#include "memory/memfd.h"
#include "sync/rcu.h"
#include "sync/timed_lock.h"
#include "transfer/peer_segments.h"
#include "transfer/registrations/registration_page.h"
#include "transports/peer_process.h"
#include "transports/transport.h"
#include "ucx/remote_ranges.h"

namespace memfabric {

// Which ways an engine may go, whoever is at the other end.
struct RoutesAllowed {
    bool host = true;  // memory that is mapped here, or reached through the kernel
    bool tcp = true;
    bool rdma = false;  // by UCX

    bool network() const { return tcp || rdma; }
};

// Of a peer, to the question of that number.
struct Answer {
    std::uint64_t number = 0;
    NotifyVerdict verdict{};
    ServedRegion region;
};

// Thread contract: filled by the thread that dialled, then shared. Transfers read it without locks inside a
// rcu::ReadGuard; long ones keep it alive themselves.
struct Peer : std::enable_shared_from_this<Peer> {
    std::string session;  // as the caller named it
    InstanceId instance{};
    std::uint64_t target_id = 0;  // the instance's target_id
    bool is_remote = false;  // on another host: it has neither page nor segments here, and checks every range itself
    PeerProcess process;
    SharedMapping page;
    PeerSegments segments;                   // of its memory that can be mapped here
    std::unique_ptr<Transport> transport;    // to all of its memory; leaves it after the page, whose words it reads
    std::unique_ptr<ucx::RemoteRanges> ucx;  // instead of it
    bool is_synchronous = true;              // the transport is: a move never waits for what the peer does
    std::string route_reason;                // why this transport
    std::shared_ptr<Link> link;              // its end means that the peer is gone
    std::mutex hearing;                      // announcements are taken one after the other
    Answer answer;                           // the last one; under `hearing`
    TimedLock asking;                        // one question at a time: that keeps the order of notifications
    std::uint64_t last_question = 0;         // under `asking`
    std::atomic<bool> gone{false};
    std::uint64_t linked_since = 0;  // of PeerFailures; the service's

    Route route() const { return ucx != nullptr ? Route::Ucx : transport->traits().route; }
    const RegistrationWords& words() const { return *reinterpret_cast<const RegistrationWords*>(page.address()); }
    std::string process_name() const {  // for sentences
        return process.pid == 0 ? "its process" : "its process (" + std::to_string(process.pid) + ")";
    }
    bool usable() const { return !gone.load(std::memory_order_acquire) && process.alive(); }

    // Where the peer's address is in this process; nullptr: only the transport leads there.
    std::byte* mapped_at(std::uint32_t segment, std::uint64_t address, std::uint64_t size_bytes) {
        std::byte* place = segments.at(segment, address, size_bytes);
        if (place == nullptr && !segments.has(segment)) [[unlikely]] {
            // Announced before it was registered, so it has arrived: the service has only not read it yet.
            while (hear() == Heard::Some && !segments.has(segment)) {
            }
            place = segments.at(segment, address, size_bytes);
        }
        return place;
    }

    static const std::atomic<std::uint32_t> kLifeUnknown;  // of a process on another host: its link tells

    enum class Heard : std::uint8_t { All, Some, End };  // Some: there may be more, which the link does not tell again
    Heard hear();              // takes what has arrived, but not for ever: of a peer that says more and more, a part
    bool take(Packet packet);  // one announcement; false: it makes no sense
    bool take_answer(std::uint64_t number, Answer& taken);  // to that question; false: it was not heard yet
    void hang_up();

private:
    bool hear_answer(const Packet& packet);  // with `hearing`; false: it is none
};

// The peers of one engine by their session's name. Looked up before every transfer, changed when somebody is dialled.
// Thread contract: any thread. `find` never blocks; what it returns lives until the caller's rcu::ReadGuard ends.
class Peers {
public:
    Peer* find(std::string_view session) const {
        const Map& map = map_.read();
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

    std::mutex writers_;
    rcu::Published<Map> map_;
};

}  // namespace memfabric
