// SPDX-License-Identifier: Apache-2.0
//
// Moves bytes between this process and another one of this host with process_vm_readv and process_vm_writev. The other
// process needs to do nothing; it may even be stopped. The kernel asks for the right to debug it (ptrace).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "transports/transport.h"

namespace memfabric {

// A process as transfers know it. A pid alone may belong to somebody else by now, so `life` tells whether it still
// means the process we met: it has a thread's id in its low 30 bits until the kernel wipes them at the process's death.
struct PeerProcess {
    pid_t pid = 0;
    const std::atomic<std::uint32_t>* life = nullptr;

    bool alive() const { return (life->load(std::memory_order_acquire) & kHolderMask) != 0; }

    static constexpr std::uint32_t kHolderMask = 0x3fffffff;
};

// Whether the kernel lets this process into that one at all. Touches nothing there.
bool kernel_allows(pid_t pid);
inline constexpr const char* kHowToAllow =
    "run both as one user, or allow it (kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE in a container); memory of "
    "trans_malloc or of a pool needs no permission";

// Budget of one small piece: two loads and one system call. Large moves are shared with the copy engine's worker
// threads. Whoever makes it keeps the word of the process's life mapped.
class PeerProcessTransport final : public Transport {
public:
    explicit PeerProcessTransport(PeerProcess process) : process_(process) {}

    const Traits& traits() const noexcept override;
    void start(const Move& move, Completion& completion) noexcept override { completion.finish(run(move)); }
    void cancel(Completion&) noexcept override {}

    // The same without a completion: the end is the return.
    Outcome run(const Move& move) const noexcept;

    const PeerProcess& process() const { return process_; }

private:
    [[gnu::cold]] Outcome explain(const Move& move, std::size_t moved_bytes, int error) const;

    const PeerProcess process_;
};

}  // namespace memfabric
