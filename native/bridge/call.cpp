// SPDX-License-Identifier: Apache-2.0
#include "bridge/call.h"

#include <atomic>

#include "base/fork_guard.h"
#include "collectives/device_table.h"
#include "copy/engine.h"
#include "memory/exported_memory.h"
#include "space/region_table.h"
#include "space/stream.h"
#include "tcp/server.h"
#include "transfer/access_epochs.h"

namespace memfabric::bridge {
namespace {

std::atomic<Carry> carrier{nullptr};

}  // namespace

void serve(Carry carry) { carrier.store(carry, std::memory_order_release); }

Carry served() { return carrier.load(std::memory_order_acquire); }

void make_fork_handlers() {
    static_cast<void>(ForkGuard::forks());
    {
        const NoForks made_with_the_first;
    }
    static_cast<void>(ExportedMemory::process());
    static_cast<void>(CopyEngine::process());
    static_cast<void>(RegionTable::process());
    static_cast<void>(StreamRegistry::process());
    static_cast<void>(tcp::Server::process());
    static_cast<void>(AccessEpochs::process());
    DeviceTable::make_fork_handlers();
}

}  // namespace memfabric::bridge
