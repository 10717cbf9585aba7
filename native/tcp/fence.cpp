// SPDX-License-Identifier: Apache-2.0
#include "tcp/fence.h"

#include <sys/socket.h>

#include <array>
#include <bit>
#include <mutex>
#include <unordered_map>

#include "endpoint/instance_id.h"
#include "sync/rcu.h"

namespace memfabric::tcp {
namespace {

struct Fences {
    std::mutex mutex;
    std::uint64_t last_number = random_number();  // nobody meets another's by chance
    std::unordered_map<std::uint64_t, Fence*> by_number;

    static std::uint64_t random_number() {
        std::array<std::uint8_t, sizeof(std::uint64_t)> bytes;
        fill_random(bytes);
        return std::bit_cast<std::uint64_t>(bytes);
    }
    static Fences& process() {
        static Fences& fences = *new Fences;
        return fences;
    }
    std::uint64_t next_number() {
        const std::lock_guard lock(mutex);
        return ++last_number;
    }
};

}  // namespace

Fence::Fence(const Exposure* exposure) : number_(Fences::process().next_number()), exposure_(exposure) {
    Fences& fences = Fences::process();
    const std::lock_guard lock(fences.mutex);
    fences.by_number.emplace(number_, this);
}

Fence::~Fence() {
    Fences& fences = Fences::process();
    const std::lock_guard lock(fences.mutex);
    fences.by_number.erase(number_);
}

void Fence::guard_socket(int fd) {
    const std::lock_guard lock(Fences::process().mutex);
    fd_ = fd;
}

void Fence::raise(const Exposure* exposure, std::span<const RemotePiece> numbers) {
    bool any = false;
    {
        Fences& fences = Fences::process();
        const std::lock_guard lock(fences.mutex);
        for (const RemotePiece& piece : numbers) {
            const auto found = fences.by_number.find(piece.address);
            if (found == fences.by_number.end() || found->second->exposure_ != exposure) continue;
            found->second->raised_.store(true, std::memory_order_seq_cst);
            shutdown(found->second->fd_, SHUT_RDWR);
            any = true;
        }
    }
    if (any) rcu::synchronize();
}

void Fence::before_fork() { Fences::process().mutex.lock(); }

void Fence::after_fork() { Fences::process().mutex.unlock(); }

}  // namespace memfabric::tcp
