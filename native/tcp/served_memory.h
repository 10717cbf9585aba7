// SPDX-License-Identifier: Apache-2.0
//
// Memory that the server serves for as long as this lives.
#pragma once

#include <memory>
#include <utility>

#include "endpoint/frames.h"
#include "tcp/exposure.h"
#include "tcp/server.h"

namespace memfabric::tcp {

// Made and destroyed with no lock held that somebody may hold who forks: the server is held across forks.
class ServedMemory {
public:
    // Peers that say `connect` may touch what the exposure covers.
    ServedMemory(const Connect& connect, std::shared_ptr<const Exposure> exposure) : connect_(connect) {
        Server::process().expose(connect.target, connect.secret, std::move(exposure));
    }
    ~ServedMemory() { Server::process().withdraw(connect_.target); }
    ServedMemory(const ServedMemory&) = delete;
    ServedMemory& operator=(const ServedMemory&) = delete;

    const Connect& connect() const { return connect_; }

private:
    const Connect connect_;
};

}  // namespace memfabric::tcp
