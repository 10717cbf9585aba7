// SPDX-License-Identifier: Apache-2.0
#include "transfer/peers.h"

#include <utility>

#include "base/last_error.h"
#include "endpoint/frames.h"
#include "sync/rcu.h"

namespace memfabric {
namespace {

constexpr int kMostPackets = 64;  // in one turn

}  // namespace

const std::atomic<std::uint32_t> Peer::kLifeUnknown{1};

Peer::Heard Peer::hear() {
    const std::lock_guard lock(hearing);
    for (int heard = 0; heard < kMostPackets; ++heard) {
        Packet packet;
        switch (link->receive(packet)) {
            case Reception::Nothing:
                return Heard::All;
            case Reception::End:
                return Heard::End;
            case Reception::Packet:
                if (hear_answer(packet) || take(std::move(packet))) continue;
                link->hang_up();  // so that the service sees an end, whoever has read this
                return Heard::End;
        }
    }
    return Heard::Some;
}

bool Peer::hear_answer(const Packet& packet) {
    if (!packet.fds.empty()) return false;
    if (const std::optional<Notified> notified = decode_notified(packet.bytes)) {
        answer = {notified->number, notified->verdict, {}};
        return true;
    }
    std::optional<ServedRegion> region = decode_served_region(packet.bytes);
    if (!region) return false;
    answer = {region->number, {}, std::move(*region)};
    return true;
}

bool Peer::take_answer(std::uint64_t number, Answer& taken) {
    const std::lock_guard lock(hearing);
    if (answer.number != number) return false;
    taken = std::move(answer);
    answer = {};
    return true;
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
    const std::lock_guard lock(hearing);
    gone.store(true, std::memory_order_release);
    link->close();
    segments.clear();  // what they hold belongs to the machine again
}

void Peers::put(std::shared_ptr<Peer> peer) {
    const std::lock_guard lock(writers_);
    map_.update([&](Map& map) {
        std::erase_if(map, [](const auto& known) { return !known.second->usable(); });
        map[peer->session] = std::move(peer);
    });
}

void Peers::abandon_in_child() { map_.reset_in_child(); }

void Peers::clear() {
    rcu::RetireList all;  // freed after everybody has left
    {
        const std::lock_guard lock(writers_);
        map_.replace(std::make_unique<const Map>());
        all = map_.take_retired();
    }
    rcu::synchronize();
}

}  // namespace memfabric
