// SPDX-License-Identifier: Apache-2.0
#include "base/pause_point.h"

#include <pthread.h>

#include <condition_variable>
#include <map>
#include <mutex>

namespace memfabric {
namespace {

struct Held {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, int> waiting;  // threads at each point that is held
};

Held* held = new Held;  // never destroyed: threads may stand there while static destructors run

}  // namespace

void PausePoint::wait_at(const char* name) {
    Held& points = *held;
    std::unique_lock lock(points.mutex);
    const auto point = points.waiting.find(name);
    if (point == points.waiting.end()) return;
    ++point->second;
    points.changed.notify_all();
    points.changed.wait(lock, [&] { return points.waiting.find(name) == points.waiting.end(); });
}

void PausePoint::hold(const std::string& name) {
    static const int fork_handler = pthread_atfork(nullptr, nullptr, [] {
        held = new Held;  // the parent's may be locked by a thread that is not here
        held_.store(0);
    });
    static_cast<void>(fork_handler);
    const std::lock_guard lock(held->mutex);
    held->waiting.emplace(name, 0);
    held_.store(static_cast<int>(held->waiting.size()));
}

bool PausePoint::wait_until_held(const std::string& name, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(held->mutex);
    return held->changed.wait_for(lock, timeout, [&] {
        const auto point = held->waiting.find(name);
        return point != held->waiting.end() && point->second != 0;
    });
}

void PausePoint::release(const std::string& name) {
    const std::lock_guard lock(held->mutex);
    held->waiting.erase(name);
    held_.store(static_cast<int>(held->waiting.size()));
    held->changed.notify_all();
}

}  // namespace memfabric
