// SPDX-License-Identifier: Apache-2.0
#include "base/pause_point.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/fork_guard.h"

namespace memfabric {
namespace {

struct Point {
    int waiting = 0;  // threads
    int passes = 0;
};

struct Held {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, Point> points;  // those that are held
};

Held* held = new Held;  // never destroyed: threads may stand there while static destructors run

}  // namespace

constinit std::atomic<int> PausePoint::held_{0};

void PausePoint::wait_at(const char* name) {
    Held& here = *held;
    std::unique_lock lock(here.mutex);
    const auto point = here.points.find(name);
    if (point == here.points.end()) return;
    ++point->second.waiting;
    here.changed.notify_all();
    here.changed.wait(lock, [&, passes = point->second.passes] {
        const auto now = here.points.find(name);
        return now == here.points.end() || now->second.passes != passes;
    });
}

void PausePoint::hold(const std::string& name) {
    static const ChildHook hook([] {
        held = new Held;  // the parent's may be locked by a thread that is not here
        held_.store(0);
    });
    const std::lock_guard lock(held->mutex);
    held->points.emplace(name, Point{});
    held_.store(static_cast<int>(held->points.size()));
}

bool PausePoint::wait_until_held(const std::string& name, std::chrono::nanoseconds timeout) {
    std::unique_lock lock(held->mutex);
    return held->changed.wait_for(lock, timeout, [&] {
        const auto point = held->points.find(name);
        return point != held->points.end() && point->second.waiting != 0;
    });
}

void PausePoint::let_pass(const std::string& name) {
    const std::lock_guard lock(held->mutex);
    const auto point = held->points.find(name);
    if (point == held->points.end()) return;
    point->second = {0, point->second.passes + 1};
    held->changed.notify_all();
}

void PausePoint::release(const std::string& name) {
    const std::lock_guard lock(held->mutex);
    held->points.erase(name);
    held_.store(static_cast<int>(held->points.size()));
    held->changed.notify_all();
}

}  // namespace memfabric
