// SPDX-License-Identifier: Apache-2.0
//
// Attaches to another engine: asks its address who it is, then its Unix socket for its pages.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "endpoint/address.h"
#include "transfer/peers.h"

namespace memfabric {

struct DialRequest {
    std::string session;  // as the caller named it
    SessionAddress address;
    InstanceId own_instance;
    std::string own_session;
    std::string own_host;
    RoutesAllowed allowed;
    Deadline deadline;
};

// Blocks until the deadline at most. The sentence of a failure names the session and what happened.
Status dial(const DialRequest& request, std::shared_ptr<Peer>& attached);

}  // namespace memfabric
