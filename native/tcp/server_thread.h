// SPDX-License-Identifier: Apache-2.0
//
// A native thread that serves data connections, whatever the program's Python is doing. After the last request it looks
// for the next one for a moment before it sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"
#include "tcp/exposure.h"
#include "tcp/server_connection.h"

namespace memfabric::tcp {

// Thread contract: public methods from any thread; the destructor ends the thread and joins it.
class ServerThread {
public:
    // Counts its connections in `all_connections`, too.
    static Status start(std::atomic<std::size_t>& all_connections, std::unique_ptr<ServerThread>& started);
    ~ServerThread();
    ServerThread(const ServerThread&) = delete;
    ServerThread& operator=(const ServerThread&) = delete;

    void adopt(std::unique_ptr<ServerConnection> connection);
    // Closes all connections to it, soon; until then its address is not another's.
    void drop(std::shared_ptr<const Exposure> exposure);
    void hold();  // around a fork: nothing of the thread's is half-done meanwhile
    void let_go();
    void abandon_in_child();  // held; closes what was inherited
    std::size_t connections() const { return connection_count_.load(std::memory_order_relaxed); }

private:
    struct Inbox {
        std::vector<std::unique_ptr<ServerConnection>> adopted;
        std::vector<std::shared_ptr<const Exposure>> dropped;
        bool stopping = false;
    };

    explicit ServerThread(std::atomic<std::size_t>& all_connections) : all_connections_(all_connections) {}
    void serve();
    bool look(bool may_sleep);
    bool read_inbox();
    void run_ready();
    void count(std::size_t change);
    void end(int fd);
    void wake();

    OwnedFd epoll_;
    OwnedFd wake_fd_;
    std::mutex mutex_;  // for the inbox
    Inbox inbox_;
    std::atomic<std::size_t> connection_count_{0};
    std::atomic<std::size_t>& all_connections_;
    std::mutex working_;  // held by the thread while it is not asleep; for what follows
    std::unordered_map<int, std::unique_ptr<ServerConnection>> connections_;  // by descriptor
    std::vector<int> ready_;                                                  // with something to do; each at most once
    std::thread thread_;                                                      // last: it uses everything above
};

}  // namespace memfabric::tcp
