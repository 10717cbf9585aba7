// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that initiators on other hosts may touch, for as long as this lives.
//
// Without an RDMA device UCX looks at no address: what an initiator names is what its target's worker touches. So that
// nobody reaches memory that is not served any more, every served memory has a worker of its own, and all connections
// to it end with that.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "ucx/abi.h"
#include "ucx/context.h"
#include "ucx/remote_memory.h"
#include "ucx/runtime.h"

namespace memfabric::ucx {

// Thread contract: made and destroyed by any thread, with no lock held that a fork needs; `add` and `for_initiators` by
// one at a time. After its end no byte of the memory moves; what was under way has failed at its initiators.
class MF_API ServedMemory {
public:
    static Status serve(std::byte* base, std::size_t size_bytes, const Options& options,
                        std::unique_ptr<ServedMemory>& served);
    ~ServedMemory();
    ServedMemory(const ServedMemory&) = delete;
    ServedMemory& operator=(const ServedMemory&) = delete;

    // A further region, through the same worker: connections that are there reach it, too.
    Status add(std::byte* base, std::size_t size_bytes);

    const RemoteMemory& for_initiators() const { return for_initiators_; }

private:
    ServedMemory() = default;

    std::shared_ptr<Runtime> runtime_;
    ProgressThread* thread_ = nullptr;
    std::unique_ptr<Worker> worker_;
    std::vector<abi::Memory> registered_;
    RemoteMemory for_initiators_;
};

}  // namespace memfabric::ucx
