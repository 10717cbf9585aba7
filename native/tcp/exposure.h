// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that peers on other hosts may touch: the registrations of an engine, or a rank's own part of a
// pool. The server looks before every system call that touches it.
#pragma once

#include <cstdint>

namespace memfabric::tcp {

// Thread contract: any thread, inside a rcu::ReadGuard; nothing blocks. Whoever takes memory away makes `covers` say
// no, then waits for a grace period: after that no byte of it moves.
class Exposure {
public:
    virtual ~Exposure() = default;

    // Changes before an answer of `covers` does: while it has not changed, what was covered is covered.
    virtual std::uint64_t generation() const noexcept = 0;
    virtual bool covers(std::uint64_t address, std::uint64_t size_bytes) const noexcept = 0;
};

}  // namespace memfabric::tcp
