// SPDX-License-Identifier: Apache-2.0
//
// This rank's own part of an object, as UCX serves it to members of other hosts while the rank takes part.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "memory/layout.h"
#include "ucx/context.h"
#include "ucx/remote_memory.h"
#include "ucx/served_memory.h"

namespace memfabric {

class Space;

// Thread contract: any thread. The memory outlives what is served of it: the space ends this before it unmaps.
class UcxSlot {
public:
    // Everything that is allocated, as far as it is new; nothing to reach (no worker) if there is none of it.
    Status serve(const Space& space, const ucx::Options& options, ucx::RemoteMemory& for_initiators);
    void end();       // when it returns, UCX touches nothing of it; it may be served again
    void end_ever();  // the same, for good

private:
    std::mutex mutex_;  // for the following; held while UCX begins and ends
    std::unique_ptr<ucx::ServedMemory> served_;
    std::array<std::uint64_t, kTiers> served_bytes_{};
    bool is_over_ = false;
};

}  // namespace memfabric
