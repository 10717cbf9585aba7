// SPDX-License-Identifier: Apache-2.0
//
// The native thread that drives the workers of all memory that this process serves, whatever the program's Python is
// doing: without an RDMA device UCX moves bytes only while the target calls it. After the last event it looks for the
// next one for a moment, then it sleeps until one of the workers has something to do.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/owned_fd.h"
#include "base/status.h"
#include "transports/completion.h"
#include "ucx/worker.h"

namespace memfabric::ucx {

// Thread contract: public methods from any thread but this one; each waits for the thread, which waits for nobody.
class ProgressThread {
public:
    static Status start(std::unique_ptr<ProgressThread>& started);
    ~ProgressThread() { stop(); }
    ProgressThread(const ProgressThread&) = delete;
    ProgressThread& operator=(const ProgressThread&) = delete;

    Status adopt(Worker& worker);              // drives it from now on
    void end(std::unique_ptr<Worker> worker);  // drives it no more, and destroys it; may take a moment
    void stop();                               // drives nothing any more, for good
    void abandon();                            // in a forked child: the thread is the parent's

private:
    struct Task {
        std::function<void()> work;
        Completion done;
    };

    ProgressThread() = default;
    void run(std::function<void()> work);
    void serve();
    bool run_tasks();
    bool progress();
    void settle(const Worker& worker);
    bool arm();
    void sleep();

    OwnedFd epoll_;
    OwnedFd wake_fd_;
    std::mutex mutex_;  // for the following
    std::vector<Task*> tasks_;
    bool over_ = false;
    std::atomic<bool> has_tasks_{false};
    std::vector<Worker*> workers_;  // the thread's own, like the next
    bool stopping_ = false;
    std::thread thread_;  // last: it uses everything above
};

}  // namespace memfabric::ucx
