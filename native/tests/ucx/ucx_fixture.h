// SPDX-License-Identifier: Apache-2.0
//
// Memory that this process serves with UCX, and a way to it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/pause_point.h"
#include "tests/assertions.h"
#include "tests/ucx/ucx_library.h"
#include "ucx/served_memory.h"
#include "ucx/transport.h"

namespace memfabric::tests {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

inline constexpr std::size_t kServedBytes = std::size_t{48} << 20;  // more than sockets and windows take

class UcxTransport : public ::testing::Test {
public:
    void SetUp() override {
        if (const std::string obstacle = load_ucx(); !obstacle.empty()) GTEST_SKIP() << obstacle;
        memory_.resize(kServedBytes);
        require_ok(ucx::ServedMemory::serve(memory_.data(), memory_.size(), ucx_over_loopback(), served_));
        transport_ = way_to(served_->for_initiators());
    }

    static std::unique_ptr<ucx::UcxTransport> way_to(const ucx::RemoteMemory& memory) {
        std::unique_ptr<ucx::UcxTransport> transport;
        require_ok(ucx::UcxTransport::open(memory, ucx_over_loopback(), transport));
        return transport;
    }

    // A move of one piece that begins at the memory's beginning.
    struct Begun {
        Begun(ucx::UcxTransport& through, Direction direction, std::vector<std::byte>& own)
            : transport(through),
              piece(piece_of(direction, reinterpret_cast<std::uint64_t>(own.data()),
                             through.memory()->regions.front().base, own.size())) {
            transport.start({direction, {&piece, 1}, own.size()}, completion);
        }
        const Outcome& finish() {
            transport.finish(completion);
            return completion.outcome();
        }
        ucx::UcxTransport& transport;
        const Piece piece;
        Completion completion;
    };

    static Outcome move(ucx::UcxTransport& transport, Direction direction, std::vector<std::byte>& own) {
        return Begun(transport, direction, own).finish();
    }

    std::vector<std::byte> memory_;
    std::unique_ptr<ucx::ServedMemory> served_;
    std::unique_ptr<ucx::UcxTransport> transport_;
};

// From `reach` on, as long as it lives, no memory that this process serves is touched by UCX.
class StuckTarget {
public:
    StuckTarget() { PausePoint::hold(kPoint); }
    ~StuckTarget() { PausePoint::release(kPoint); }
    StuckTarget(const StuckTarget&) = delete;
    StuckTarget& operator=(const StuckTarget&) = delete;

    // The thread that serves it sleeps while nothing happens: something has to be under way.
    void reach(ucx::UcxTransport& transport, Completion& completion) const {
        const auto give_up_at = Clock::now() + 30s;
        while (!PausePoint::wait_until_held(kPoint, 1ms)) {
            require(Clock::now() < give_up_at && !completion.done());
            static_cast<void>(transport.progress(completion, Clock::now() + 1ms));
        }
    }

private:
    static constexpr char kPoint[] = "ucx.progress";
};

}  // namespace memfabric::tests
