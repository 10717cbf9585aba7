// SPDX-License-Identifier: Apache-2.0
//
// Memory that only a transport leads to, for tests: at addresses of somebody else's, and visible here for comparison.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "copy/engine.h"
#include "transports/peer_process.h"
#include "transports/transport.h"

namespace memfabric::tests {

// Pretends that its buffer lies at other addresses, where nothing is in this process.
class FarMemory final : public Transport {
public:
    FarMemory(std::uintptr_t base, std::size_t size_bytes) : base_(base), bytes_(size_bytes) {}

    const Traits& traits() const noexcept override {
        static constexpr Traits kTraits{.route = Route::Tcp,
                                        .synchronous = true,
                                        .peer_is_idle = true,
                                        .addresses_are_ours = false,
                                        .part_bytes = 0};
        return kTraits;
    }
    void start(const Move& move, Completion& completion) noexcept override {
        for (const Piece& piece : move.pieces) {
            std::byte* far = bytes_.data() + (remote_of(move.direction, piece) - base_);
            const Piece here = with_remote_at(move.direction, piece, far);
            std::memmove(here.target, here.source, here.size_bytes);
        }
        completion.finish({Status::Ok, move.total_bytes, {}});
    }
    void cancel(Completion&) noexcept override {}

    std::byte* data() { return bytes_.data(); }

private:
    std::uintptr_t base_;
    std::vector<std::byte> bytes_;
};

// A child of this process that does nothing but to exist. Its memory is shared with us, at the same addresses.
class ChildMemory {
public:
    explicit ChildMemory(std::size_t size_bytes) : size_bytes_(size_bytes) {
        memory_ = static_cast<std::byte*>(
            mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
        pid_ = fork();
        if (pid_ == 0) {
            for (;;) pause();
        }
    }
    ~ChildMemory() {
        end();
        munmap(memory_, size_bytes_);
    }
    ChildMemory(const ChildMemory&) = delete;
    ChildMemory& operator=(const ChildMemory&) = delete;

    void end() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    PeerProcess process() const { return {pid_, &life}; }
    std::byte* data() const { return memory_; }

    std::atomic<std::uint32_t> life{1};

private:
    const std::size_t size_bytes_;
    std::byte* memory_;
    pid_t pid_ = -1;
};

}  // namespace memfabric::tests
