// SPDX-License-Identifier: Apache-2.0
//
// A place where peers on other hosts connect for data, and nothing else: for pools. A native thread lets them in,
// whatever the program's Python is doing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "endpoint/address.h"
#include "endpoint/endpoint.h"
#include "tls/identity.h"

namespace memfabric::tcp {

// Thread contract: public methods from any thread; the destructor ends the thread and joins it.
class MF_API Listener {
public:
    // At the first port from `address.port` to `last_port` that is free; port 0: any.
    // With an identity connections are encrypted.
    static Status open(const SessionAddress& address, std::uint16_t last_port,
                       std::shared_ptr<const tls::Identity> identity, std::unique_ptr<Listener>& opened);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    const SessionAddress& address() const { return address_; }  // with the port

private:
    Listener() = default;
    void serve();
    void hear(const std::shared_ptr<Link>& link);

    const ForkGuard fork_guard_;
    SessionAddress address_;
    std::shared_ptr<Endpoint> endpoint_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;  // last: it uses everything above
};

}  // namespace memfabric::tcp
