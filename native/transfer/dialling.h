// SPDX-License-Identifier: Apache-2.0
//
// Attaches to another engine: asks its address who it is, then its Unix socket for its pages.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/frames.h"
#include "tls/identity.h"
#include "transfer/peers.h"
#include "ucx/context.h"

namespace memfabric {

// Which way to a peer that is reached through the network.
struct NetworkRoute {
    bool by_ucx = false;
    std::string reason;  // why this way
};

// Decided by the control plane, which knows both ends. NotConnected, with a sentence, if there is none.
using ChooseNetworkRoute = std::function<Status(const UcxOffer& peer, bool same_host, NetworkRoute& chosen)>;

struct DialRequest {
    std::string session;  // as the caller named it
    SessionAddress address;
    InstanceId own_instance;
    std::string own_session;
    std::string own_host;
    RoutesAllowed allowed;
    ChooseNetworkRoute choose;                      // nothing: TCP
    ucx::Options ucx;                               // of our own end, if it has one
    std::shared_ptr<const tls::Identity> identity;  // what goes over TCP is encrypted
    Deadline deadline;
};

// Blocks until the deadline at most. The sentence of a failure names the session and what happened.
Status dial(const DialRequest& request, std::shared_ptr<Peer>& attached);

}  // namespace memfabric
