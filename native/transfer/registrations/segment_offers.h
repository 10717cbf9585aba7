// SPDX-License-Identifier: Apache-2.0
//
// Which memory files the peers of an engine have been given: those in which registered memory lies. Every peer hears
// of all of them when it attaches, and of every change afterwards, in the order in which they happened.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "endpoint/endpoint.h"
#include "endpoint/frames.h"
#include "endpoint/link.h"
#include "memory/exported_memory.h"

namespace memfabric {

// Thread contract: any thread; nothing blocks.
class SegmentOffers {
public:
    // Sent to all initiators when this returns, except to those whose sockets are full: they get it when they read
    // again (or, if too many descriptors are in flight, when `retry` finds that fewer are).
    void show(std::span<const ExportedRange> ranges);
    void withdraw(std::uint32_t id);

    // Sends the acceptance with the registrations, and all that is shown behind it; false: the initiator is gone. The
    // descriptor stays the caller's, open until the initiator is dismissed.
    bool admit(std::shared_ptr<Link> link, const InstanceId& instance, const Secret& data_secret, int registrations_fd);
    void flush(const Link& link);  // its socket has room again
    void dismiss(const Link& link);

    // While too many descriptors are in flight, what is queued waits for somebody to call `retry` now and then; the
    // endpoint, if there is one, is woken when that begins. True: it still waits.
    bool retry();
    void wake_when_crowded(std::shared_ptr<Endpoint> endpoint);

private:
    using Queue = std::deque<ExportedRange>;  // what has not been sent; without a file: withdrawn
    struct Initiator {
        std::shared_ptr<Link> link;
        Accepted accepted{};
        int registrations_fd = -1;  // until the acceptance is sent
        Queue queue;
    };

    Sending send_queued(Initiator& initiator);
    Sending send_and_tell(Initiator& initiator);

    std::mutex mutex_;
    std::map<std::uint32_t, ExportedRange> shown_;
    std::unordered_map<const Link*, Initiator> initiators_;
    bool crowded_ = false;
    std::shared_ptr<Endpoint> endpoint_;
};

}  // namespace memfabric
