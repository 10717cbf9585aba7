// SPDX-License-Identifier: Apache-2.0
//
// Moves bytes between this process and memory that another host serves with UCX: by its RDMA devices where there are
// some, and over UCX's own TCP otherwise. Whoever waits for a move drives it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "transports/transport.h"
#include "ucx/context.h"
#include "ucx/endpoint.h"
#include "ucx/remote_memory.h"
#include "ucx/runtime.h"

namespace memfabric::ucx {

class UcxMove;

// Endpoints are made when they are needed, kept while they are quiet, and serve one move at a time. Budget of one small
// move on a quiet endpoint: a look at our side (one system call), four allocations, and UCX's put and flush.
class MF_API UcxTransport final : public Transport {
public:
    static Status open(RemoteMemory memory, const Options& options, std::unique_ptr<UcxTransport>& opened);
    ~UcxTransport() override;

    const Traits& traits() const noexcept override;
    void start(const Move& move, Completion& completion) noexcept override;
    bool progress(Completion& completion, Deadline until) noexcept override;
    void cancel(Completion& completion) noexcept override;

    // The target serves further regions: the same worker, and `memory` has all that was there before.
    void grow(RemoteMemory memory);

    std::shared_ptr<const RemoteMemory> memory() const;
    std::size_t endpoints() const;

private:
    friend class UcxMove;

    explicit UcxTransport(RemoteMemory memory) : memory_(std::make_shared<const RemoteMemory>(std::move(memory))) {}
    bool refuse(const RemoteMemory& memory, const Move& move, Completion& completion) const;

    std::unique_ptr<Endpoint> connect();
    std::unique_ptr<Endpoint> lease();  // nothing: there are enough, wait for one
    void give_back(std::unique_ptr<Endpoint> endpoint);
    void free_request(abi::Request request) const;
    std::string explain(abi::Result result) const;

    std::shared_ptr<Runtime> runtime_;
    Initiator* initiator_ = nullptr;
    mutable std::mutex mutex_;  // for the following
    std::shared_ptr<const RemoteMemory> memory_;
    std::vector<std::unique_ptr<Endpoint>> quiet_;
    std::size_t leased_ = 0;
    abi::Result refusal_ = abi::kOk;  // of the last attempt to connect
    Deadline try_again_at_ = Deadline::min();
};

}  // namespace memfabric::ucx
