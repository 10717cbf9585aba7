// SPDX-License-Identifier: Apache-2.0
#include "space/stream_registry.h"

#include <pthread.h>

#include <utility>

namespace memfabric {

// Never destroyed: streams may be closed while static destructors run. Its lock is held across fork, so that a child
// never inherits it in somebody else's hands.
StreamRegistry& StreamRegistry::process() {
    static StreamRegistry& registry = *new StreamRegistry;
    static const int fork_handlers = pthread_atfork([] { registry.mutex_.lock(); }, [] { registry.mutex_.unlock(); },
                                                    [] { registry.mutex_.unlock(); });
    static_cast<void>(fork_handlers);
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
