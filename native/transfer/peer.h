// SPDX-License-Identifier: Apache-2.0
//
// An engine of another process (or of this one) that we are attached to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/owned_fd.h"
#include "endpoint/packets.h"
#include "memory/memfd.h"
#include "transfer/peer_segments.h"
#include "transfer/registration_page.h"
#include "transports/peer_process.h"

namespace memfabric {

// Thread contract: filled by the thread that dialled, then shared. Transfers read it without locks inside a
// rcu::ReadGuard; long ones keep it alive themselves.
struct Peer : std::enable_shared_from_this<Peer> {
    std::string session;  // as the caller named it
    InstanceId instance{};
    std::uint64_t target_id = 0;  // the instance's target_id
    PeerProcess process;
    SharedMapping page;
    PeerSegments segments;
    OwnedFd link;  // its end means that the peer is gone; closed by the service's thread, under the lock
    std::mutex link_mutex;
    std::atomic<bool> gone{false};

    const RegistrationWords& words() const { return *reinterpret_cast<const RegistrationWords*>(page.address()); }
    bool usable() const { return !gone.load(std::memory_order_acquire) && process.alive(); }

    // Where the peer's address is in this process; nullptr: only the kernel leads there.
    std::byte* mapped_at(std::uint32_t segment, std::uint64_t address, std::uint64_t size_bytes) {
        std::byte* place = segments.at(segment, address, size_bytes);
        if (place == nullptr && !segments.has(segment)) [[unlikely]] {
            // Announced before it was registered, so it has arrived: the service has only not read it yet.
            hear();
            place = segments.at(segment, address, size_bytes);
        }
        return place;
    }

    bool hear();               // takes the announcements that have arrived; false: the link has ended
    bool take(Packet packet);  // one announcement; false: it makes no sense
    void hang_up();
};

}  // namespace memfabric
