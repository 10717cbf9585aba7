// SPDX-License-Identifier: Apache-2.0
#include "transfer/dialling.h"

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/interruption.h"
#include "base/last_error.h"
#include "base/notice.h"
#include "endpoint/frames.h"
#include "endpoint/link.h"
#include "tcp/transport.h"
#include "transfer/access_epochs.h"

namespace memfabric {
namespace {

constexpr auto kCrowdedPause = std::chrono::milliseconds(5);

Status silent(const DialRequest& request) {
    return fail(Status::Timeout,
                "session %s is there but did not answer in time; its process is stopped, or is no transfer engine",
                request.session.c_str());
}

Status strange(const DialRequest& request) {
    return fail(Status::NotConnected,
                "session %s gave no answer that this version understands; is it a transfer engine of the same version?",
                request.session.c_str());
}

Status refuses(const DialRequest& request, const Refused& refused) {
    return fail(Status::NotConnected, "session %s refuses: %s", request.session.c_str(), refused.reason.c_str());
}

Status distrust(const DialRequest& request, const Link& link) {
    return fail(Status::NotConnected, "session %s: there is no encrypted connection to it: %s", request.session.c_str(),
                link.failure().c_str());
}

Status crowded(const DialRequest& request) {
    return fail(Status::NoResources,
                "session %s: too many descriptors of this user are on their way between processes; raise the limit of "
                "open files (ulimit -n)",
                request.session.c_str());
}

// Puts the session's name before the sentence of whatever failed inside.
Status about(const DialRequest& request, Status status) {
    return fail(status, "session %s: %s", request.session.c_str(), take_last_error().c_str());
}

Status wait_for_news(const Link& link, const DialRequest& request) {
    const Status status = link.wait_for_news(request.deadline);
    return status == Status::Timeout ? silent(request) : status;
}

Status receive(Link& link, const DialRequest& request, Packet& packet) {
    for (;;) {
        if (const Status status = wait_for_news(link, request); status != Status::Ok) return status;
        switch (link.receive(packet)) {
            case Reception::Nothing:
                continue;
            case Reception::Packet:
                return Status::Ok;
            case Reception::End:
                return link.failure().empty() ? strange(request) : distrust(request, link);
        }
    }
}

// A connection to the session's address, encrypted if this process wants that.
Status connect(const DialRequest& request, std::shared_ptr<Link>& link) {
    OwnedFd connection;
    if (const Status status = connect_to(request.address, request.deadline, connection); status != Status::Ok) {
        return status;
    }
    std::unique_ptr<tls::Stream> tls;
    if (request.identity != nullptr) {
        tls = tls::Stream::open(request.identity->context(), connection.get(), tls::Role::Client);
        if (tls == nullptr) return fail(Status::NoResources, "session %s: no memory for TLS", request.session.c_str());
    }
    link = std::make_shared<Link>(Link::Kind::Tcp, std::move(connection), std::move(tls));
    for (;;) {
        switch (link->shake_hands()) {
            case tls::Handshake::Done:
                return Status::Ok;
            case tls::Handshake::Failed:
                return distrust(request, *link);
            case tls::Handshake::Blocked:
                if (const Status status = wait_for_news(*link, request); status != Status::Ok) return status;
        }
    }
}

Status ask_who(const DialRequest& request, std::shared_ptr<Link>& link, Welcome& welcome) {
    if (const Status status = connect(request, link); status != Status::Ok) return status;
    if (link->send(encode(Hello{})) != Sending::Sent) return strange(request);
    Packet answer;
    if (const Status status = receive(*link, request, answer); status != Status::Ok) return status;
    if (const std::optional<Refused> refused = decode_refused(answer.bytes)) return refuses(request, *refused);
    const std::optional<Welcome> decoded = decode_welcome(answer.bytes);
    if (!decoded) return strange(request);
    welcome = *decoded;
    return Status::Ok;
}

Status attach(const DialRequest& request, const Welcome& welcome, Packet& answer, std::shared_ptr<Link>& link) {
    int epochs_fd = -1;
    if (const Status status = AccessEpochs::process().fd(epochs_fd); status != Status::Ok) return status;
    if (const Status status = Link::connect(welcome.unix_name, link); status != Status::Ok) {
        return about(request, status);
    }
    const Bytes bytes = encode(Attach{welcome.secret, request.own_instance, request.own_session});
    for (;;) {
        const Sending sending = link->send(bytes, std::array{epochs_fd});
        if (sending == Sending::Sent) break;
        if (sending != Sending::Crowded) return strange(request);
        if (std::chrono::steady_clock::now() >= request.deadline) return crowded(request);
        if (Interruption::requested()) return Status::Interrupted;
        std::this_thread::sleep_for(kCrowdedPause);  // nothing tells when the kernel takes more
    }
    return receive(*link, request, answer);
}

// Everything that the peer shows at the moment: a transfer that comes next finds it.
Status take_segments(const DialRequest& request, std::uint32_t count, Peer& peer) {
    for (std::uint32_t taken = 0; taken < count; ++taken) {
        Packet packet;
        if (const Status status = receive(*peer.link, request, packet); status != Status::Ok) return status;
        if (!peer.take(std::move(packet))) return strange(request);
    }
    return Status::Ok;
}

Status take_pages(const DialRequest& request, Packet& answer, Peer& peer, Secret& data_secret) {
    if (const std::optional<Refused> refused = decode_refused(answer.bytes)) return refuses(request, *refused);
    if (answer.fds_lost) {
        return fail(Status::NoResources,
                    "session %s: this process has no descriptor left for its registrations; raise the limit of open "
                    "files (ulimit -n)",
                    request.session.c_str());
    }
    const std::optional<Accepted> accepted = decode_accepted(answer.bytes);
    if (!accepted || answer.fds.size() != 1) return strange(request);
    const int page_fd = answer.fds[0].get();
    Status status = check_memory_file(page_fd, RegistrationWords::kPageBytes);
    if (status == Status::Ok) {
        status = SharedMapping::map(page_fd, RegistrationWords::kPageBytes, /*writable=*/false, peer.page);
    }
    if (status != Status::Ok) return about(request, status);
    const RegistrationWords& words = peer.words();
    if (words.magic != RegistrationWords::kMagic || words.version != RegistrationWords::kVersion ||
        words.capacity != RegistrationWords::kCapacity || words.instance != accepted->instance) {
        return strange(request);
    }
    peer.instance = accepted->instance;
    peer.target_id = target_id(accepted->instance);
    data_secret = accepted->data_secret;
    return take_segments(request, accepted->segment_count, peer);
}

Status reach_over_tcp(const DialRequest& request, const SessionAddress& address, const Secret& secret, Peer& peer) {
    tcp::Target target;
    const Status status = tcp::Target::make(address, {peer.instance, secret}, request.identity, target);
    if (status != Status::Ok) return about(request, status);
    peer.transport = std::make_unique<tcp::TcpTransport>(target);
    peer.is_synchronous = false;
    return Status::Ok;
}

// Why its memory cannot be reached through the kernel, where it is not mapped here; "" if nothing stands in the way.
std::string obstacle_to(const PeerProcess& process) {
    if (process.pid == 0) return "its process cannot be seen from here (another container); share the pid namespace";
    if (kernel_allows(process.pid)) return {};
    return "the kernel does not let this process into process " + std::to_string(process.pid) + "; " + kHowToAllow;
}

// What is mapped here needs no way; `link` leads to the session's address.
Status choose_way(const DialRequest& request, const Link& link, const Secret& data_secret, Peer& peer) {
    const std::string obstacle = obstacle_to(peer.process);
    if (obstacle.empty() || (!request.allowed.tcp && peer.process.pid != 0)) {  // says so when it is used
        peer.route_reason = "both are on one host";
        peer.transport = std::make_unique<PeerProcessTransport>(peer.process);
        return Status::Ok;
    }
    if (!request.allowed.tcp) {
        return fail(Status::NotConnected, "session %s: %s, or allow HOST_TCP in data_op_type", request.session.c_str(),
                    obstacle.c_str());
    }
    SessionAddress data_address;
    if (!link.peer(data_address)) return strange(request);
    peer.route_reason = "both are on one host, but " + obstacle;
    notice("session %s: memory that is not mapped here goes over TCP, which is slower: %s", request.session.c_str(),
           obstacle.c_str());
    return reach_over_tcp(request, data_address, data_secret, peer);
}

Status attach_neighbour(const DialRequest& request, const Welcome& welcome, const Link& tcp_link, Peer& peer) {
    Packet answer;
    Secret data_secret;
    if (const Status status = attach(request, welcome, answer, peer.link); status != Status::Ok) return status;
    if (const Status status = take_pages(request, answer, peer, data_secret); status != Status::Ok) return status;
    ucred owner{};
    peer.process = {peer.link->peer(owner) && owner.pid > 0 ? owner.pid : 0, &peer.words().life};
    if (const Status status = choose_way(request, tcp_link, data_secret, peer); status != Status::Ok) return status;
    // The pid was asked for while the process lived: the word is wiped before the number can be given away.
    if (peer.process.alive()) return Status::Ok;
    return fail(Status::NotConnected, "session %s ended while we attached to it", request.session.c_str());
}

Status choose_network_route(const DialRequest& request, const UcxOffer& ucx, bool same_host, NetworkRoute& chosen) {
    if (request.choose != nullptr) {
        const Status status = request.choose(ucx, same_host, chosen);
        return status == Status::Ok ? status : about(request, status);
    }
    chosen.reason = same_host ? "data_op_type allows nothing but the network" : "it is on another host";
    return Status::Ok;
}

// On the connection that we have: it stays, and its end means that the peer is gone.
Status attach_remote(const DialRequest& request, const Welcome& welcome, const std::shared_ptr<Link>& link,
                     bool same_host, Peer& peer) {
    const AttachRemote attach{welcome.secret, request.own_instance, request.own_session};
    if (link->send(encode(attach)) != Sending::Sent) return strange(request);
    Packet answer;
    if (const Status status = receive(*link, request, answer); status != Status::Ok) return status;
    if (const std::optional<Refused> refused = decode_refused(answer.bytes)) return refuses(request, *refused);
    const std::optional<AcceptedRemote> accepted = decode_accepted_remote(answer.bytes);
    SessionAddress data_address;
    if (!accepted || !link->peer(data_address)) return strange(request);
    if (!accepted->data_host.empty()) data_address.host = accepted->data_host;
    if (accepted->data_port != 0) data_address.port = accepted->data_port;
    link->keep_alive();
    peer.is_remote = true;
    peer.instance = welcome.instance;
    peer.target_id = target_id(welcome.instance);
    peer.process = {0, &Peer::kLifeUnknown};
    peer.link = link;
    NetworkRoute chosen;
    const Status status = choose_network_route(request, accepted->ucx, same_host, chosen);
    if (status != Status::Ok) return status;
    peer.route_reason = chosen.reason;
    if (!chosen.by_ucx) return reach_over_tcp(request, data_address, accepted->data_secret, peer);
    peer.ucx = std::make_unique<ucx::RemoteRanges>(request.ucx, accepted->ucx.version);
    peer.is_synchronous = false;
    return Status::Ok;
}

}  // namespace

Status dial(const DialRequest& request, std::shared_ptr<Peer>& attached) {
    Welcome welcome;
    std::shared_ptr<Link> link;
    if (const Status status = ask_who(request, link, welcome); status != Status::Ok) return status;
    auto peer = std::make_shared<Peer>();
    peer->session = request.session;
    peer->segments.session = request.session;
    const bool same_host = welcome.host == request.own_host;
    Status status = Status::Ok;
    if (same_host && request.allowed.host) {
        status = attach_neighbour(request, welcome, *link, *peer);
    } else if (request.allowed.network()) {
        status = attach_remote(request, welcome, link, same_host, *peer);
    } else {
        status = fail(Status::NotConnected,
                      "session %s is on another host (or in a container with its own network), and data_op_type allows "
                      "memory of this host only; allow HOST_TCP, or SDMA for the best route there is",
                      request.session.c_str());
    }
    if (status == Status::Ok) attached = std::move(peer);
    return status;
}

}  // namespace memfabric
