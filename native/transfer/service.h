// SPDX-License-Identifier: Apache-2.0
//
// Answers an engine's peers from a native thread of its own: whatever the program's Python is doing, first contacts are
// answered and deaths are noticed. Listens at two places: TCP for the address, Unix for descriptors. Moves no data.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork_guard.h"
#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/endpoint.h"
#include "endpoint/frames.h"
#include "endpoint/link.h"
#include "endpoint/remote_descriptors.h"
#include "transfer/access_epochs.h"
#include "transfer/notifications.h"
#include "transfer/peer_failures.h"
#include "transfer/peers.h"
#include "transfer/registrations/segment_offers.h"
#include "ucx/served_ranges.h"

namespace memfabric {

// What the service tells about its engine.
struct SessionOffer {
    std::string session;  // as peers reach it
    std::string host;     // which one this process is on
    InstanceId instance;
    Secret secret;
    Secret data_secret;           // of connections that carry data from and to other hosts
    SessionAddress data_address;  // where they are made; without a host: at the session's
    int registrations_fd;
    std::shared_ptr<SegmentOffers> segments;
    UcxOffer ucx;
    std::shared_ptr<const ucx::ServedRanges> ucx_ranges;  // nothing: UCX is not offered
    std::shared_ptr<const tls::Identity> identity;        // what comes over TCP is encrypted
};

// Thread contract: public methods from any thread; the destructor ends the thread and joins it.
class SessionService {
public:
    static Status start(const SessionOffer& offer, OwnedFd tcp_listener, std::shared_ptr<PeerFailures> failures,
                        std::shared_ptr<Notifications> notifications, std::unique_ptr<SessionService>& started);
    ~SessionService();
    SessionService(const SessionService&) = delete;
    SessionService& operator=(const SessionService&) = delete;

    void stop();                             // joins the thread, ends every connection; idempotent
    void watch(std::shared_ptr<Peer> peer);  // marks it as gone when its link ends
    void mute(const Peer& peer);             // while somebody else reads its link: only the end is noticed
    void unmute(const Peer& peer);

    // Until everybody who was inside our memory at the time of the call has left. False at the deadline; `late` is then
    // the pid of one who has not.
    bool wait_for_initiators(Deadline deadline, pid_t& late);

private:
    struct Initiator {
        InitiatorEpochs page;
        pid_t pid = 0;
        std::string session;
        InstanceId instance{};
        std::uint64_t linked_since = 0;  // of PeerFailures
        std::atomic<bool> linked{true};
        std::atomic<bool> gone{false};  // its process is, or nobody cares any more
    };
    using LinkPointer = std::shared_ptr<Link>;
    struct RemoteInitiator {  // touches our memory through tcp::Server only
        LinkPointer link;
        RemoteDescriptors descriptor;  // the link's
        std::string session;
        InstanceId instance{};
        std::uint64_t linked_since = 0;  // of PeerFailures
    };

    SessionService(const SessionOffer& offer, std::shared_ptr<PeerFailures> failures,
                   std::shared_ptr<Notifications> notifications);
    Status open(OwnedFd tcp_listener);
    void serve();
    void hear(const LinkPointer& link);
    void hear_stranger(const LinkPointer& link);
    void admit_remote(const LinkPointer& link, const AttachRemote& attach);
    bool hear_questions(const LinkPointer& link, const std::string& session);
    bool answer(const LinkPointer& link, const std::string& session, const Packet& packet);
    ServedRegion region_at(const AskRegion& ask) const;
    void hear_attach(const LinkPointer& link);
    void end_initiator(Link& link);
    void end_remote_initiator(Link& link);
    void end_peer(Link& link);
    void remember(const std::shared_ptr<Initiator>& initiator);
    std::string reason_to_refuse(const Packet& packet, const ucred& credentials) const;
    bool tick();

    const ForkGuard fork_guard_;
    const SessionOffer offer_;
    const std::string unix_name_;
    const std::shared_ptr<PeerFailures> failures_;
    const std::shared_ptr<Notifications> notifications_;
    std::shared_ptr<Endpoint> endpoint_;
    std::mutex mutex_;  // for what follows
    std::unordered_map<const Link*, std::pair<LinkPointer, std::shared_ptr<Initiator>>> initiators_;
    std::unordered_map<const Link*, RemoteInitiator> remote_initiators_;
    std::unordered_map<const Link*, std::shared_ptr<Peer>> peers_;
    std::vector<std::shared_ptr<Peer>> departed_;  // gone; transfers that have not noticed may still be in their memory
    // Their links have ended but not their processes, which may be inside until they notice. One for each process.
    std::vector<std::shared_ptr<Initiator>> unlinked_;
    std::vector<LinkPointer> unheard_;  // that have said more than is taken in one turn
    Deadline retry_at_{};               // too many descriptors are in flight: not sooner
    bool crowded_ = false;
    std::atomic<bool> stopping_{false};
    std::mutex joining_;  // held by whoever stops
    std::thread thread_;  // last: it uses everything above
};

}  // namespace memfabric
