// SPDX-License-Identifier: Apache-2.0
//
// One engine: shows its registered memory to its peers and moves bytes between this process and theirs. The peer does
// nothing for a transfer.
//
//   life: make → open ⇄ close. Registrations and allocations work before open, too; transfers only between.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "copy/request.h"
#include "endpoint/address.h"
#include "memory/arena.h"
#include "memory/exported_memory.h"
#include "memory/machine_memory.h"
#include "space/stream.h"
#include "sync/liveness_lease.h"
#include "tcp/listener.h"
#include "tcp/served_memory.h"
#include "tls/identity.h"
#include "transfer/dialling.h"
#include "transfer/notifications.h"
#include "transfer/peer_failures.h"
#include "transfer/peers.h"
#include "transfer/quantisation.h"
#include "transfer/registrations/registrations.h"
#include "transfer/registrations/segment_offers.h"
#include "transfer/service.h"
#include "transfer/submissions.h"
#include "transports/transport.h"
#include "ucx/context.h"
#include "ucx/served_ranges.h"

namespace memfabric {

struct Question;

// A batch as callers hold it. `buffers` are this process's addresses, `peer_buffers` the peer's.
struct TransferArrays {
    std::span<const std::uint64_t> buffers;
    std::span<const std::uint64_t> peer_buffers;
    std::span<const std::uint64_t> sizes;
};

// Where peers of other hosts connect for data: at the first port that is free. Without a host: at the session's
// address.
struct DataPlace {
    std::string host;
    std::uint16_t first_port = 0;
    std::uint16_t last_port = 0;
};

// What this process has of UCX (without options only the reason why there is nothing), and who decides where it leads.
struct UcxUse {
    std::optional<ucx::Options> options;
    UcxOffer offer;
    ChooseNetworkRoute choose;
};

// 16-bit numbers that become 8-bit integers at the peer; quantisation.h says how. Each piece has `unit_num` units of
// equal size; scales[i] and offsets[i] are the addresses of that many 32-bit floats (an offset address of 0, or no
// offsets at all: zeroes). Lengths are in bytes of the source. Owns its numbers: it may run later, on a stream.
struct QuantisedBatch {
    std::vector<std::uint64_t> buffers;
    std::vector<std::uint64_t> peer_buffers;
    std::vector<std::uint64_t> lengths;
    std::vector<std::uint64_t> scales;
    std::vector<std::uint64_t> offsets;
    std::uint32_t unit_num;
    HalfType type;
    std::optional<Bytes> notification;  // for the peer's program, when all is there
};

// Thread contract: every method from any thread. Transfers block for their bytes and, at first contact, up to the
// time-out; nothing is locked on their way. `unregister_memory`, `release` and `close` wait for peers that are inside.
// Every failure leaves a sentence in the thread's last error.
class MF_API TransferEngine final : public std::enable_shared_from_this<TransferEngine>, private ExportWatcher {
public:
    using Milliseconds = std::chrono::milliseconds;
    // Finds the address of a session whose name is none; for the control plane, may block until the deadline.
    using Directory = std::function<Status(const std::string& session, std::string& address)>;

    TransferEngine();
    ~TransferEngine();
    TransferEngine(const TransferEngine&) = delete;
    TransferEngine& operator=(const TransferEngine&) = delete;

    // `host` says which host this process counts as: engines of other hosts are reached through the network. With an
    // identity all that goes through it is encrypted, and so are peers' connections to us.
    // While another thread closes the engine, `open`, `close`, `port` and `allocate` wait for it.
    Status open(const std::string& session, Milliseconds timeout, const std::string& host, RoutesAllowed allowed = {},
                const DataPlace& data_place = {}, const UcxUse& ucx = {},
                std::shared_ptr<const tls::Identity> identity = nullptr);
    void close();  // idempotent
    void abandon_in_child();
    bool is_open() const { return !fork_guard_.in_forked_child() && open_.load(std::memory_order_acquire); }
    Status port(std::uint16_t& port);  // reserved before open, listening after it
    std::string session() const;       // as peers reach it; "" when not open
    void set_directory(Directory directory);

    Status register_memory(std::span<const std::uint64_t> starts, std::span<const std::uint64_t> sizes_bytes);
    Status unregister_memory(std::span<const std::uint64_t> starts);
    Status allocate(std::uint64_t size_bytes, std::uint64_t& address);
    void set_memory_limit(MemoryLimit limit);  // of what `allocate` may give
    Status release(std::uint64_t address);
    std::size_t registration_count() const;

    Status transfer(Direction direction, std::string_view session, std::uint64_t buffer, std::uint64_t peer_buffer,
                    std::uint64_t size_bytes);
    // The same if we are attached already and never wait for the peer on the way: then Python's lock can be
    // kept. Nothing otherwise.
    std::optional<Status> transfer_if_attached(Direction direction, std::string_view session, std::uint64_t buffer,
                                               std::uint64_t peer_buffer, std::uint64_t size_bytes);
    Status transfer_batch(Direction direction, std::string_view session, const TransferArrays& arrays);
    // The peer's program is told when all bytes are there; if they are not, it is told nothing.
    Status write_batch_and_notify(std::string_view session, const TransferArrays& arrays, std::string_view data);
    Status write_quantised(const std::string& session, QuantisedBatch batch, std::uint64_t stream);  // 0: at once
    Status probe(std::string_view session);
    // Which way transfers of memory go there that is not mapped here, and why. Attaches if need be.
    Status route(std::string_view session, Route& route, std::string& reason);

    // Tells the session's program something; Ok when it is in the queue there, acknowledged. At most
    // kMaxNotificationBytes. Blocks up to the time-out.
    Status notify(std::string_view session, std::string_view data);
    static Status check_notification(std::string_view data);
    std::shared_ptr<Notifications> notifications() const;  // of this life of the engine

    // Runs the transfer on a stream; 0 is no stream. A notification goes with writes only, as above.
    Status submit(Direction direction, std::string_view session, const TransferArrays& arrays, std::uint64_t stream,
                  std::optional<std::string_view> notification = std::nullopt);
    // Runs any work of this engine beside the program, behind what was submitted for that session before.
    Status submit_own(std::string_view session, Submissions::Task task);

    std::shared_ptr<PeerFailures> failures() const;

private:
    struct Dial {  // one attempt to reach a session, shared by all who want it meanwhile
        bool done = false;
        Status status = Status::Ok;
        std::string sentence;
    };

    Status gather(Direction direction, const TransferArrays& arrays, std::vector<Piece>& pieces,
                  std::uint64_t& total_bytes) const;
    Status move(Direction direction, std::string_view session, std::span<const Piece> pieces,
                std::uint64_t total_bytes);
    std::optional<Status> move_if_attached(Direction direction, std::string_view session, std::span<const Piece> pieces,
                                           std::uint64_t total_bytes, bool may_wait);
    Status move_to(Peer& peer, const Move& move);
    Status move_remote(rcu::ReadGuard& guard, Peer& peer, const Move& move);
    Status route_remote(Peer& peer, const Move& move, RoutedBatch& batch, ucx::RemoteRanges::Kept& kept);
    Status learn_region(Peer& peer, const Move& move, std::uint64_t address);
    Status ask_peer(Peer& peer, const Question& question, Answer& answer);
    Status move_inside(rcu::ReadGuard& guard, Peer& peer, std::shared_ptr<Peer>& kept, const Move& move);
    Status write_and_notify(std::string_view session, std::span<const Piece> pieces, std::uint64_t total_bytes,
                            std::string_view data);
    // Attached, now or before, and kept by the caller.
    Status attach_to(std::string_view session, std::shared_ptr<Peer>& peer);
    static constexpr int kMostAttempts = 3;  // a peer may restart between attaching and using it, but not forever
    static Status ends_again_and_again(std::string_view session);
    Status notify_peer(Peer& peer, std::string_view data);
    Status quantise_and_move(const std::string& session, const QuantisedBatch& batch);
    Status attach(const std::string& session);
    Status dial_once(const std::string& session);
    Status wait_for_initiators(const char* what);
    void serve_by_ucx(std::span<const std::uint64_t> starts, std::span<const std::uint64_t> sizes_bytes);
    bool remove_inside(std::uint64_t start, std::uint64_t end);
    std::shared_ptr<ucx::ServedRanges> ucx_ranges() const;
    static void wait_for_server();
    void export_ends(const ExportedRange& range) override;
    Status check_process() const;
    Deadline deadline() const { return std::chrono::steady_clock::now() + timeout_; }

    const ForkGuard fork_guard_;
    Registrations registrations_;
    Peers peers_;

    std::unique_lock<std::mutex> lock_when_closed();
    void wait_until_closed(std::unique_lock<std::mutex>& lock);

    mutable std::mutex mutex_;  // for opening, closing and everything below
    std::atomic<bool> open_{false};
    bool closing_ = false;  // some of the below is gone already; the lock is free meanwhile, for those who must leave
    std::condition_variable closed_;
    Milliseconds timeout_{3000};
    std::string session_;
    std::string host_;
    RoutesAllowed allowed_;
    InstanceId instance_{};
    OwnedFd port_holder_;
    std::uint16_t port_ = 0;
    MemoryLimit memory_limit_;
    std::unique_ptr<Arena> arena_;
    std::shared_ptr<RegistrationPage> page_;
    std::shared_ptr<SegmentOffers> offers_;
    std::unique_ptr<LivenessLease> lease_;
    std::shared_ptr<SessionService> service_;       // shared with calls that wait while the engine closes
    std::unique_ptr<tcp::ServedMemory> served_;     // what peers of other hosts see of the page
    std::unique_ptr<tcp::Listener> data_listener_;  // where they connect, if not at the session's address
    std::shared_ptr<Submissions> submissions_;
    Directory directory_;
    ChooseNetworkRoute choose_network_route_;
    ucx::Options ucx_options_;
    std::shared_ptr<const tls::Identity> identity_;
    std::shared_ptr<ucx::ServedRanges>
        ucx_ranges_;  // what peers of other hosts reach by UCX; nothing if it is not here
    std::shared_ptr<PeerFailures> failures_ = std::make_shared<PeerFailures>();
    std::shared_ptr<Notifications> notifications_ = std::make_shared<Notifications>();

    std::mutex dial_mutex_;
    std::condition_variable dial_done_;
    std::unordered_map<std::string, std::shared_ptr<Dial>> dials_;
};

}  // namespace memfabric
