// SPDX-License-Identifier: Apache-2.0
//
// Serves the exposed memory of this process to peers on other hosts: a few native threads for all exposures and all
// connections. Who lets connections in (a session, a pool's listener) passes them on to here once they have proved
// themselves.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/fork_guard.h"
#include "base/status.h"
#include "endpoint/endpoint.h"
#include "endpoint/frames.h"
#include "endpoint/instance_id.h"
#include "endpoint/link.h"
#include "tcp/exposure.h"
#include "tcp/server_thread.h"

namespace memfabric::tcp {

// Thread contract: any thread; nothing blocks, but the last `withdraw` joins the threads.
class MF_API Server {
public:
    static Server& process();

    // Whoever shows the secret may touch what the exposure covers.
    void expose(const InstanceId& id, const Secret& secret, std::shared_ptr<const Exposure> exposure);
    // Its connections end. The exposure covers nothing by then: it has its own order with those who are inside.
    void withdraw(const InstanceId& id);

    // Lets a connection in that has said `connect`, or refuses it and drops it. It has left the endpoint then.
    void admit(const Connect& connect, Endpoint& endpoint, Link& link);

    std::size_t threads() const;
    // Takes no lock: for those who took memory away and ask whether anybody can be inside.
    std::size_t connections() const { return connections_.load(std::memory_order_seq_cst); }

private:
    struct Exposed {
        Secret secret;
        std::shared_ptr<const Exposure> exposure;
    };

    friend void hold_across_forks<Server>();
    Server() { hold_across_forks<Server>(); }
    void before_fork();
    void after_fork();
    void begin_in_child();

    std::string hand_over(const Connect& connect, Endpoint& endpoint, Link& link);
    Status choose_thread(ServerThread*& chosen);

    std::atomic<std::size_t> connections_{0};
    mutable std::mutex mutex_;  // for the rest
    std::map<InstanceId, Exposed> exposed_;
    std::vector<std::unique_ptr<ServerThread>> threads_;
};

}  // namespace memfabric::tcp
