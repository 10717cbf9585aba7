// SPDX-License-Identifier: Apache-2.0
//
// Integer handles of streams: what callers of the copy functions pass. Knows the streams, does not keep them alive.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace memfabric {

class Stream;

class StreamRegistry {
public:
    static StreamRegistry& process();

    std::uint64_t next_handle();
    void add(std::uint64_t handle, std::weak_ptr<Stream> stream);
    void remove(std::uint64_t handle);
    std::shared_ptr<Stream> find(std::uint64_t handle) const;
    std::vector<std::shared_ptr<Stream>> all() const;

private:
    mutable std::mutex mutex_;
    std::uint64_t last_handle_ = 0;
    std::unordered_map<std::uint64_t, std::weak_ptr<Stream>> streams_;
};

}  // namespace memfabric
