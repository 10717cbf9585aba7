// SPDX-License-Identifier: Apache-2.0
#include "transfer/peers.h"

#include <utility>

#include "base/last_error.h"
#include "endpoint/frames.h"
#include "sync/rcu.h"

namespace memfabric {

bool Peer::hear() {
    const std::lock_guard lock(link_mutex);
    if (!link) return false;
    for (;;) {
        Packet packet;
        switch (receive_packet(link.get(), packet)) {
            case Reception::Nothing:
                return true;
            case Reception::End:
                return false;
            case Reception::Packet:
                if (take(std::move(packet))) continue;
                shutdown(link.get(), SHUT_RDWR);  // so that the service sees an end, whoever has read this
                return false;
        }
    }
}

bool Peer::take(Packet packet) {
    if (const std::optional<Withdrawn> withdrawn = decode_withdrawn(packet.bytes)) {
        segments.remove(withdrawn->id);
        return packet.fds.empty();
    }
    const std::optional<Offered> offered = decode_offered(packet.bytes);
    if (!offered || packet.fds.size() != (packet.fds_lost ? 0 : 1)) return false;
    const std::string before = last_error();
    // Without a descriptor the segment cannot be mapped here; the kernel's route leads there as well.
    const Status status = packet.fds_lost ? segments.miss(*offered) : segments.add(*offered, std::move(packet.fds[0]));
    if (status != Status::Ok) set_last_error(before);  // whoever happens to read the link has asked for something else
    return status == Status::Ok;
}

void Peer::hang_up() {
    const std::lock_guard lock(link_mutex);
    gone.store(true, std::memory_order_release);
    link.reset();
    segments.clear();  // what they hold belongs to the machine again
}

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
