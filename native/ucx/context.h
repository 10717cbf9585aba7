// SPDX-License-Identifier: Apache-2.0
//
// UCX's view of this process: which devices it uses, and which memory they may touch.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "ucx/abi.h"
#include "ucx/library.h"
#include "ucx/worker.h"

namespace memfabric::ucx {

// Which ways UCX may go, in its own words (UCX_TLS, UCX_NET_DEVICES). Never shared memory or the kernel's copies
// between processes: with these an initiator would reach memory that is not served any more.
struct Options {
    std::string transports = "tcp";
    std::string devices = "all";

    bool operator==(const Options&) const = default;
};

// Thread contract: any thread. Workers and mapped memory go before it does.
class Context {
public:
    explicit Context(const Library& library) : library_(library) {}
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    Status open(const Options& options);
    Status make_worker(std::unique_ptr<Worker>& made) const;

    // Peers may touch it; `key` is what they need to have.
    Status map(std::byte* address, std::size_t size_bytes, abi::Memory& memory, std::string& key) const;
    void unmap(abi::Memory memory) const;

    void abandon() { handle_ = nullptr; }  // in a forked child: it is the parent's
    const Library& library() const { return library_; }

private:
    const Library& library_;
    abi::Context handle_ = nullptr;
};

}  // namespace memfabric::ucx
