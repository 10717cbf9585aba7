// SPDX-License-Identifier: Apache-2.0
#include "space/stream.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/blocked_signals.h"
#include "base/cancellation.h"
#include "base/interruption.h"
#include "base/last_error.h"
#include "base/notify_fd.h"
#include "base/pause_point.h"

namespace memfabric {

struct Stream::Queue {
    struct Listener {
        std::uint64_t sequence;
        std::function<void()> notify;
    };

    mutable std::mutex mutex;
    std::condition_variable work;      // something was submitted, or the stream closes
    std::condition_variable progress;  // something has ended
    std::deque<Task> tasks;
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    std::atomic<std::uint64_t> cancelled = 0;  // tasks up to this one are called off
    Failure first_failure;
    std::vector<Listener> listeners;
    bool closing = false;
    bool started = false;
    bool ended = false;  // the thread has nothing more to do
    std::mutex joining;  // held by whoever joins, so that a second `close` returns after the thread has ended, too
    std::thread thread;

    void run();
    Status wait(std::unique_lock<std::mutex>& lock, Timeout timeout, const std::function<bool()>& reached);
};

// Timeout without a sentence. An interruption looks around without the lock, which the thread needs.
Status Stream::Queue::wait(std::unique_lock<std::mutex>& lock, Timeout timeout, const std::function<bool()>& reached) {
    constexpr std::chrono::hours kUntilWoken{24};
    const auto until = std::chrono::steady_clock::now() + timeout.value_or(kUntilWoken);
    while (!reached()) {
        const auto left = timeout ? until - std::chrono::steady_clock::now() : kUntilWoken;
        if (left <= std::chrono::nanoseconds::zero()) return Status::Timeout;
        if (progress.wait_for(lock, Interruption::slice(left), reached)) break;
        lock.unlock();
        const bool interrupted = Interruption::requested();
        lock.lock();
        if (interrupted) return Status::Interrupted;
    }
    return Status::Ok;
}

void Stream::Queue::run() {
    pthread_setname_np(pthread_self(), "mf-stream");
    std::unique_lock lock(mutex);
    while (true) {
        work.wait(lock, [this] { return closing || !tasks.empty(); });
        if (tasks.empty()) {
            ended = true;
            return progress.notify_all();
        }
        Task task = std::move(tasks.front());
        tasks.pop_front();
        const std::uint64_t sequence = completed + 1;
        lock.unlock();
        PausePoint::reach("stream.before_task");
        const Cancellation scope([this, sequence] { return cancelled.load(std::memory_order_acquire) >= sequence; });
        const Status status = task();
        task = nullptr;  // what the task kept alive goes before anybody hears that it has ended
        Failure failure{status, status == Status::Ok ? std::string() : take_last_error()};
        lock.lock();
        ++completed;
        if (status != Status::Ok && first_failure.status == Status::Ok) first_failure = std::move(failure);
        const auto due = std::partition(listeners.begin(), listeners.end(),
                                        [this](const Listener& listener) { return listener.sequence > completed; });
        std::vector<Listener> told(std::make_move_iterator(due), std::make_move_iterator(listeners.end()));
        listeners.erase(due, listeners.end());
        for (const Listener& listener : told) listener.notify();
        progress.notify_all();
        if (told.empty()) continue;
        lock.unlock();
        told.clear();  // what a listener keeps may need the interpreter to go, and who has that may want the lock
        lock.lock();
    }
}

std::shared_ptr<Stream> Stream::make() {
    StreamRegistry& registry = StreamRegistry::process();
    std::shared_ptr<Stream> stream(new Stream(registry.next_handle()));
    registry.add(stream->handle_, stream);
    return stream;
}

std::shared_ptr<Stream> Stream::find(std::uint64_t handle) { return StreamRegistry::process().find(handle); }

Status Stream::close_all() {
    for (const auto& stream : StreamRegistry::process().all()) {
        if (const Status status = stream->close(); status != Status::Ok) return status;
    }
    return Status::Ok;
}

Stream::Stream(std::uint64_t handle) : handle_(handle), queue_(std::make_unique<Queue>()) {}

Stream::~Stream() {
    if (fork_guard_.in_forked_child()) {
        static_cast<void>(queue_.release());  // destroying the parent's thread or its condition variables would hang
        return;
    }
    const DeferredInterruption deferred;
    static_cast<void>(close());
}

Status Stream::check_process() const {
    if (!fork_guard_.in_forked_child()) return Status::Ok;
    return fail(Status::NotInit, "stream %" PRIu64 " belongs to the parent of this forked process; make one here",
                handle_);
}

Status Stream::submit(Task task, std::uint64_t& sequence) {
    if (const Status status = check_process(); status != Status::Ok) return status;
    const std::lock_guard lock(queue_->mutex);
    if (queue_->closing) return fail(Status::InvalidParam, "stream %" PRIu64 " is closed", handle_);
    if (queue_->submitted - queue_->completed >= kMaxPending) {
        return fail(Status::NoResources,
                    "stream %" PRIu64 " has %" PRIu64 " copies waiting, the most it takes; wait for some", handle_,
                    kMaxPending);
    }
    if (!queue_->started) {
        try {
            const BlockedSignals blocked;
            queue_->thread = std::thread([queue = queue_.get()] { queue->run(); });
            queue_->started = true;
        } catch (const std::system_error& error) {
            return fail(Status::NoResources, "stream %" PRIu64 " cannot start its thread: %s", handle_, error.what());
        }
    }
    queue_->tasks.push_back(std::move(task));
    sequence = ++queue_->submitted;
    queue_->work.notify_one();
    return Status::Ok;
}

void Stream::cancel(std::uint64_t sequence) {
    if (fork_guard_.in_forked_child()) return;
    const std::lock_guard lock(queue_->mutex);
    const std::uint64_t known = std::min(sequence, queue_->submitted);
    if (known > queue_->cancelled.load(std::memory_order_relaxed)) queue_->cancelled.store(known);
}

Status Stream::run_cancellable(const Task& work) {
    if (Cancellation::requested()) return fail(Status::NotStarted, "it was cancelled before it began");
    const Status status = work();
    if (status != Status::Interrupted) return status;
    return fail(Status::PartialFailed, "it was cancelled while it ran: treat all its targets as undefined");
}

std::uint64_t Stream::submitted() const {
    if (fork_guard_.in_forked_child()) return 0;
    const std::lock_guard lock(queue_->mutex);
    return queue_->submitted;
}

std::uint64_t Stream::completed() const {
    if (fork_guard_.in_forked_child()) return 0;
    const std::lock_guard lock(queue_->mutex);
    return queue_->completed;
}

Status Stream::wait_for(std::uint64_t sequence, Timeout timeout) const {
    if (const Status status = check_process(); status != Status::Ok) return status;
    std::unique_lock lock(queue_->mutex);
    const Status status = queue_->wait(lock, timeout, [&] { return queue_->completed >= sequence; });
    if (status != Status::Timeout) return status;
    return fail(status, "stream %" PRIu64 " has ended %" PRIu64 " of %" PRIu64 " copies after %.3f s", handle_,
                queue_->completed, sequence, std::chrono::duration<double>(*timeout).count());
}

Status Stream::wait(Timeout timeout) {
    if (const Status status = wait_for(submitted(), timeout); status != Status::Ok) return status;
    const std::lock_guard lock(queue_->mutex);
    const Failure failure = std::exchange(queue_->first_failure, {});
    if (failure.status != Status::Ok) set_last_error(failure.sentence);
    return failure.status;
}

Failure Stream::first_failure() const {
    if (fork_guard_.in_forked_child()) return {};
    const std::lock_guard lock(queue_->mutex);
    return queue_->first_failure;
}

Status Stream::notify_fd(std::uint64_t sequence, int& fd) const {
    if (const Status status = check_process(); status != Status::Ok) return status;
    const auto notifier = std::make_shared<NotifyFd>();  // shared: functions must be copyable
    const std::string name = "stream " + std::to_string(handle_);
    if (const Status status = NotifyFd::make(name.c_str(), *notifier, fd); status != Status::Ok) return status;
    return listen(sequence, [notifier] { notifier->notify(); });
}

Status Stream::listen(std::uint64_t sequence, std::function<void()> listener) const {
    if (const Status status = check_process(); status != Status::Ok) return status;
    const std::lock_guard lock(queue_->mutex);
    if (queue_->completed >= sequence || queue_->ended) {
        listener();
    } else {
        queue_->listeners.push_back({sequence, std::move(listener)});
    }
    return Status::Ok;
}

Status Stream::close() {
    if (fork_guard_.in_forked_child()) return Status::Ok;
    StreamRegistry::process().remove(handle_);
    {
        std::unique_lock lock(queue_->mutex);
        queue_->closing = true;
        queue_->work.notify_one();
        const bool started = queue_->started;
        const Status status = queue_->wait(lock, std::nullopt, [&] { return !started || queue_->ended; });
        if (status != Status::Ok) return status;
    }
    const std::lock_guard joining(queue_->joining);
    if (queue_->thread.joinable()) queue_->thread.join();
    std::vector<Queue::Listener> told;  // of work that now never comes; ends without the lock, as in `run`
    const std::lock_guard lock(queue_->mutex);
    told.swap(queue_->listeners);
    for (const auto& listener : told) listener.notify();
    return Status::Ok;
}

// Never destroyed: streams may be closed while static destructors run.
StreamRegistry& StreamRegistry::process() {
    static StreamRegistry& registry = *new StreamRegistry;
    return registry;
}

std::uint64_t StreamRegistry::next_handle() {
    const std::lock_guard lock(mutex_);
    return ++last_handle_;
}

void StreamRegistry::add(std::uint64_t handle, std::weak_ptr<Stream> stream) {
    const std::lock_guard lock(mutex_);
    streams_.emplace(handle, std::move(stream));
}

void StreamRegistry::remove(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    streams_.erase(handle);
}

std::shared_ptr<Stream> StreamRegistry::find(std::uint64_t handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(handle);
    return found == streams_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<Stream>> StreamRegistry::all() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Stream>> streams;
    for (const auto& [handle, weak] : streams_) {
        if (auto stream = weak.lock()) streams.push_back(std::move(stream));
    }
    return streams;
}

}  // namespace memfabric
