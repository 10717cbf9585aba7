// SPDX-License-Identifier: Apache-2.0
//
// Moves bytes between this process and one on another host over plain TCP: straight from the source into the socket,
// and from the socket straight into the target. Whoever waits for a move drives it: there is no thread in between, and
// nothing runs while nobody waits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/api.h"
#include "tcp/connection.h"
#include "transports/transport.h"

namespace memfabric::tcp {

class TcpMove;

// Connections are made when they are needed, kept while they are quiet, and serve one move at a time. Budget of one
// small move on a quiet connection: a lock, two allocations, three system calls here and four at the target.
class MF_API TcpTransport final : public Transport {
public:
    explicit TcpTransport(Target target) : target_(std::move(target)) {}
    ~TcpTransport() override;

    const Traits& traits() const noexcept override;
    void start(const Move& move, Completion& completion) noexcept override;
    bool progress(Completion& completion, Deadline until) noexcept override;
    void cancel(Completion& completion) noexcept override;

    const Target& target() const { return target_; }
    std::size_t connections() const;

private:
    friend class TcpMove;

    std::unique_ptr<Connection> lease();  // nothing: there are enough, wait for one
    void give_back(std::unique_ptr<Connection> connection);

    const Target target_;
    mutable std::mutex mutex_;  // for the following
    std::vector<std::unique_ptr<Connection>> quiet_;
    std::size_t leased_ = 0;
};

}  // namespace memfabric::tcp
