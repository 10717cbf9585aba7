// SPDX-License-Identifier: Apache-2.0
//
// A connection to one served memory, with the keys to its regions. UCX makes it when it is first used; when the other
// side goes, everything under way on it fails.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ucx/abi.h"
#include "ucx/remote_memory.h"
#include "ucx/worker.h"

namespace memfabric::ucx {

// Thread contract: whoever has the initiator's turn. It must not be destroyed before it is closed, unless its worker
// was.
class Endpoint {
public:
    explicit Endpoint(Worker& worker) : worker_(worker) {}
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    void open(const RemoteMemory& memory);                // `failure` says if that went wrong
    void fail(abi::Result result) { failure_ = result; }  // instead
    bool is_open() const { return handle_ != nullptr; }

    // The remote side of each operation lies in that region of `memory`, which may have grown since `open`.
    abi::Request put(const void* source, std::size_t size_bytes, std::uint64_t target, const RemoteMemory& memory,
                     std::size_t region, const abi::RequestParams& params);
    abi::Request get(void* target, std::size_t size_bytes, std::uint64_t source, const RemoteMemory& memory,
                     std::size_t region, const abi::RequestParams& params);
    abi::Request flush(const abi::RequestParams& params);

    // Everything under way ends, as a failure and soon.
    void begin_close();
    bool is_closing() const { return closing_; }
    bool is_closed();

    abi::Result failure() const { return failure_; }  // kOk: none

private:
    abi::Result unlock(const RemoteMemory& memory, std::size_t region);

    Worker& worker_;
    abi::Endpoint handle_ = nullptr;
    std::vector<abi::RemoteKey> keys_;  // by region; nullptr: not needed yet
    abi::Result failure_ = abi::kOk;
    bool closing_ = false;
    abi::Request close_request_ = nullptr;
};

}  // namespace memfabric::ucx
