// SPDX-License-Identifier: Apache-2.0
#include "transfer/submissions.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/blocked_signals.h"
#include "base/interruption.h"
#include "base/last_error.h"
#include "base/pause_point.h"

namespace memfabric {

struct Submissions::Queue {
    using Lines = std::map<std::string, std::deque<Task>, std::less<>>;  // by session; the first one may be running

    std::mutex mutex;  // for everything but the threads, once nothing is taken any more
    std::condition_variable work;
    std::condition_variable ended;
    Lines lines;                        // of sessions with something to do
    std::deque<Lines::iterator> ready;  // those of which nothing runs
    std::size_t waiting = 0;
    std::size_t alive = 0;  // threads
    bool closing = false;
    std::mutex joining;
    std::vector<std::thread> threads;

    bool start_thread();
    void run();
    void run_next(std::unique_lock<std::mutex>& lock);
};

bool Submissions::Queue::start_thread() {
    try {
        const BlockedSignals blocked;
        threads.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
        return false;
    }
    ++alive;
    return true;
}

void Submissions::Queue::run() {
    pthread_setname_np(pthread_self(), "mf-submitted");
    std::unique_lock lock(mutex);
    for (;;) {
        work.wait(lock, [this] { return closing || !ready.empty(); });
        if (ready.empty()) break;  // whoever runs something now goes on with what is behind it
        run_next(lock);
    }
    --alive;
    ended.notify_all();
}

void Submissions::Queue::run_next(std::unique_lock<std::mutex>& lock) {
    const Lines::iterator line = ready.front();
    ready.pop_front();
    Task task = std::move(line->second.front());
    lock.unlock();
    PausePoint::reach("submissions.before_task");
    task();
    task = nullptr;
    lock.lock();
    --waiting;
    line->second.pop_front();
    line->second.empty() ? static_cast<void>(lines.erase(line)) : ready.push_back(line);
}

Submissions::Submissions() : queue_(std::make_unique<Queue>()) {}

Submissions::~Submissions() {
    if (fork_guard_.in_forked_child()) {
        static_cast<void>(queue_.release());  // destroying the parent's threads or its condition variables would hang
        return;
    }
    const DeferredInterruption deferred;
    close();
}

Status Submissions::submit(std::string_view session, Task task) {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->closing) return fail(Status::NotInit, "the transfer engine is being destroyed, and takes no transfers");
    if (queue_->waiting >= kMostWaiting) {
        return fail(Status::NoResources, "%zu transfers are waiting already, the most there may be; wait for some",
                    queue_->waiting);
    }
    if (const auto line = queue_->lines.find(session); line != queue_->lines.end()) {
        line->second.push_back(std::move(task));
        ++queue_->waiting;
        return Status::Ok;  // whoever runs what is before it goes on with it
    }
    // A thread for each session that has something to do; those that are left over have to wait for one.
    const bool wants_thread = queue_->lines.size() >= queue_->alive && queue_->alive < kMostThreads;
    if (wants_thread && !queue_->start_thread() && queue_->alive == 0) {
        return fail(Status::NoResources,
                    "no thread can be started for a transfer beside the program: raise the limit of processes "
                    "(ulimit -u, pids.max), or transfer without a ticket");
    }
    const auto line = queue_->lines.emplace(session, Queue::Lines::mapped_type()).first;
    line->second.push_back(std::move(task));
    ++queue_->waiting;
    queue_->ready.push_back(line);
    queue_->work.notify_one();
    return Status::Ok;
}

void Submissions::close() {
    constexpr std::chrono::hours kUntilWoken{24};
    if (fork_guard_.in_forked_child()) return;
    std::unique_lock lock(queue_->mutex);
    queue_->closing = true;
    queue_->work.notify_all();
    while (queue_->alive != 0) {
        queue_->ended.wait_for(lock, Interruption::slice(kUntilWoken));
        lock.unlock();
        static_cast<void>(Interruption::requested());  // signal handlers run; what they raise comes out later
        lock.lock();
    }
    lock.unlock();
    const std::lock_guard joining(queue_->joining);
    for (std::thread& thread : queue_->threads) {
        if (thread.joinable()) thread.join();
    }
}

}  // namespace memfabric
