// SPDX-License-Identifier: Apache-2.0
#include "ucx/progress_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/blocked_signals.h"
#include "base/fork_guard.h"
#include "base/last_error.h"
#include "base/pause_point.h"
#include "ucx/inherited_sockets.h"
#include "ucx/spin.h"

namespace memfabric::ucx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSettling{20};
constexpr std::chrono::milliseconds kLongestSettling{500};
constexpr int kStepsBetweenLooks = 50;

}  // namespace

Status ProgressThread::start(std::unique_ptr<ProgressThread>& started) {
    std::unique_ptr<ProgressThread> made(new ProgressThread);
    made->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    made->wake_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event{};
    event.events = EPOLLIN;
    if (!made->epoll_ || !made->wake_fd_ ||
        epoll_ctl(made->epoll_.get(), EPOLL_CTL_ADD, made->wake_fd_.get(), &event) != 0) {
        return fail(Status::NoResources, "UCX cannot be watched: %s; raise the limit of open files",
                    std::strerror(errno));
    }
    try {
        const BlockedSignals blocked;
        made->thread_ = std::thread([raw = made.get()] { raw->serve(); });
    } catch (const std::system_error& error) {
        return fail(Status::NoResources, "no thread to serve memory with UCX: %s", error.what());
    }
    started = std::move(made);
    return Status::Ok;
}

void ProgressThread::stop() {
    if (!thread_.joinable()) return;
    run([this] { stopping_ = true; });
    thread_.join();
}

void ProgressThread::abandon() { ForkGuard::abandon(thread_); }

Status ProgressThread::adopt(Worker& worker) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, worker.fd(), &event) != 0) {
        return fail(Status::NoResources, "UCX's worker cannot be watched: %s", std::strerror(errno));
    }
    run([&] { workers_.push_back(&worker); });
    return Status::Ok;
}

void ProgressThread::end(std::unique_ptr<Worker> worker) {
    run([&] {
        settle(*worker);
        std::erase(workers_, worker.get());
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, worker->fd(), nullptr);
        worker.reset();
    });
}

// UCX's TCP calls abort when a worker goes while one of its connections is half made: before 1.14 here, since then at
// the initiator. So those that are being made are finished: none is new for a while. RDMA devices have no such sockets.
void ProgressThread::settle(const Worker& worker) {
    const auto give_up_at = Clock::now() + kLongestSettling;
    std::vector<int> seen;
    for (auto settled_at = Clock::now() + kSettling; Clock::now() < std::min(settled_at, give_up_at);) {
        std::vector<int> sockets;
        for_each_watched_socket(worker.fd(), [&](int fd) { sockets.push_back(fd); });
        if (sockets.empty()) return;
        if (sockets != seen) settled_at = Clock::now() + kSettling;
        seen = std::move(sockets);
        for (int step = 0; step < kStepsBetweenLooks; ++step) {
            progress();
            std::this_thread::yield();
        }
    }
}

// On the thread; here if that is over.
void ProgressThread::run(std::function<void()> work) {
    Task task{std::move(work), {}};
    {
        const std::lock_guard lock(mutex_);
        if (over_) return task.work();
        tasks_.push_back(&task);
        has_tasks_.store(true, std::memory_order_release);
    }
    eventfd_write(wake_fd_.get(), 1);
    task.done.wait_out();
}

void ProgressThread::serve() {
    pthread_setname_np(pthread_self(), "mf-ucx");
    Spin spin(kTargetSpin);
    while (!stopping_) {
        PausePoint::reach("ucx.progress");
        if (run_tasks() | progress()) {
            spin.begin();
        } else if (spin.goes_on()) {
            std::this_thread::yield();  // the other side may be on this core
        } else if (arm()) {
            sleep();
            spin.begin();
        }
    }
    const std::lock_guard lock(mutex_);
    over_ = true;
    for (Task* task : std::exchange(tasks_, {})) {
        task->work();
        task->done.finish({});
    }
}

bool ProgressThread::run_tasks() {
    if (!has_tasks_.load(std::memory_order_acquire)) return false;
    std::vector<Task*> tasks;
    {
        const std::lock_guard lock(mutex_);
        tasks.swap(tasks_);
        has_tasks_.store(false, std::memory_order_relaxed);
    }
    for (Task* task : tasks) {
        task->work();
        task->done.finish({});
    }
    return true;
}

bool ProgressThread::progress() {
    bool moved = false;
    for (Worker* worker : workers_) moved |= worker->progress();
    return moved;
}

bool ProgressThread::arm() {
    return std::ranges::all_of(workers_, [](Worker* worker) { return worker->arm(); });
}

void ProgressThread::sleep() {
    std::array<epoll_event, 8> events;
    epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    eventfd_t wakeups;  // read here, not with the tasks: whoever brings one writes after it may have been done
    eventfd_read(wake_fd_.get(), &wakeups);
}

}  // namespace memfabric::ucx
