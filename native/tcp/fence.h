// SPDX-License-Identifier: Apache-2.0
//
// Keeps bytes of a write that was given up from arriving later, over what was written since. An initiator that gives up
// a write cannot take back what the network, or the target's kernel, still holds of it. So whatever it sends next to
// that target begins with the numbers of the connections that it has given up (tcp/given_up.h), and the target raises
// their fences before it goes on: from then on nothing that they carry is moved.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "tcp/exposure.h"
#include "tcp/wire.h"

namespace memfabric::tcp {

// The target's, one for each connection that was let in. Thread contract: the owner's thread, and `raise` from any.
// Readers look at `raised` inside a rcu::ReadGuard, around every system call that touches exposed memory.
class Fence {
public:
    explicit Fence(const Exposure* exposure);
    ~Fence();
    Fence(const Fence&) = delete;
    Fence& operator=(const Fence&) = delete;

    std::uint64_t number() const { return number_; }  // what the initiator calls the connection; never used twice
    bool raised() const { return raised_.load(std::memory_order_seq_cst); }
    void guard_socket(int fd);  // is shut down when the fence is raised, so that nobody waits for it

    // All of these (their addresses are numbers) that lead to the same exposure. Not inside a guard: when it returns,
    // none of them moves a byte any more.
    static void raise(const Exposure* exposure, std::span<const RemotePiece> numbers);

    // Taken after all locks of the server.
    static void before_fork();
    static void after_fork();

private:
    const std::uint64_t number_;
    const Exposure* const exposure_;
    int fd_ = -1;
    std::atomic<bool> raised_{false};
};

}  // namespace memfabric::tcp
