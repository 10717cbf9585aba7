// SPDX-License-Identifier: Apache-2.0
//
// Answers an engine's peers from a native thread of its own: whatever the program's Python is doing, first contacts are
// answered and deaths are noticed. Two listeners (TCP for the address, Unix for descriptors) and every open connection
// in one epoll. Moves no data.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fork_guard.h"
#include "base/owned_fd.h"
#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/packets.h"
#include "transfer/access_epochs.h"
#include "transfer/peer_failures.h"
#include "transfer/peers.h"
#include "transfer/segment_offers.h"

namespace memfabric {

// What the service tells about its engine.
struct SessionOffer {
    std::string session;  // as peers reach it
    std::string host;     // which one this process is on
    InstanceId instance;
    Secret secret;
    int registrations_fd;
    std::shared_ptr<SegmentOffers> segments;
};

// Thread contract: public methods from any thread; the destructor ends the thread and joins it.
class SessionService {
public:
    static Status start(const SessionOffer& offer, OwnedFd tcp_listener, std::shared_ptr<PeerFailures> failures,
                        std::unique_ptr<SessionService>& started);
    ~SessionService();
    SessionService(const SessionService&) = delete;
    SessionService& operator=(const SessionService&) = delete;

    void stop();                             // joins the thread, ends every connection; idempotent
    void watch(std::shared_ptr<Peer> peer);  // marks it as gone when its link ends

    // Until everybody who was inside our memory at the time of the call has left. False at the deadline; `late` is then
    // the pid of one who has not.
    bool wait_for_initiators(Deadline deadline, pid_t& late);

private:
    struct Initiator {
        InitiatorEpochs page;
        pid_t pid = 0;
        std::string session;
        InstanceId instance{};
        std::atomic<bool> linked{true};
        std::atomic<bool> gone{false};  // its process is, or nobody cares any more
    };
    enum class Kind : std::uint8_t { TcpListener, UnixListener, WakeUp, Greeting, Attaching, Initiator, Target };
    struct Connection {
        explicit Connection(Kind what) : kind(what) {}

        Kind kind;
        OwnedFd fd;  // none for listeners and peers: somebody else owns theirs
        Deadline deadline = Deadline::max();
        Bytes received;
        bool answered = false;
        std::shared_ptr<Initiator> initiator;
        std::shared_ptr<Peer> peer;
    };

    SessionService(const SessionOffer& offer, OwnedFd tcp_listener, std::shared_ptr<PeerFailures> failures);
    Status open();
    void serve();
    bool add(int fd, Connection connection);
    bool listen_to(int operation, int fd, std::uint32_t events);
    void drop(int fd);
    void remember(const std::shared_ptr<Initiator>& initiator);
    void handle(int fd);
    void accept_all(int listener, Kind kind);
    void make_room();
    void listen_for_greetings(std::uint32_t events);
    void hear_greeting(int fd, Connection& connection);
    void hear_attach(int fd, Connection& connection);
    void hear_initiator(int fd);
    std::string reason_to_refuse(const Packet& packet, const ucred& credentials) const;
    bool tick();

    const ForkGuard fork_guard_;
    const SessionOffer offer_;
    const std::string unix_name_;
    const std::shared_ptr<PeerFailures> failures_;
    OwnedFd tcp_listener_;
    OwnedFd unix_listener_;
    OwnedFd wake_fd_;
    OwnedFd epoll_;
    std::mutex mutex_;  // for the connections
    std::unordered_map<int, Connection> connections_;
    std::vector<std::shared_ptr<Peer>> departed_;  // gone; transfers that have not noticed may still be in their memory
    // Their links have ended but not their processes, which may be inside until they notice. One for each process.
    std::vector<std::shared_ptr<Initiator>> unlinked_;
    Deadline paused_until_{};  // out of descriptors: the listeners wait
    bool paused_ = false;
    Deadline retry_at_{};  // too many descriptors are in flight: not sooner
    bool crowded_ = false;
    std::atomic<bool> stopping_{false};
    std::mutex joining_;  // held by whoever stops
    std::thread thread_;  // last: it uses everything above
};

}  // namespace memfabric
