// SPDX-License-Identifier: Apache-2.0
#include "base/fork_guard.h"

#include <mutex>

namespace memfabric {
namespace {

// What NoForks holds, and forks take as well.
class ForkTurn {
public:
    static ForkTurn& process() {
        static ForkTurn& turn = *new ForkTurn;
        return turn;
    }
    void take() { mutex_.lock(); }
    void give_back() { mutex_.unlock(); }

private:
    friend void memfabric::hold_across_forks<ForkTurn>();
    ForkTurn() { hold_across_forks<ForkTurn>(); }
    void before_fork() { take(); }
    void after_fork() { give_back(); }
    void begin_in_child() { give_back(); }

    std::mutex mutex_;
};

}  // namespace

constinit std::atomic<std::uint32_t> ForkGuard::forks_{0};

std::uint32_t ForkGuard::forks() {
    static const ChildHook hook([] { forks_.fetch_add(1, std::memory_order_relaxed); });
    return forks_.load(std::memory_order_relaxed);
}

ChildHook::ChildHook(void (*begin)()) { pthread_atfork(nullptr, nullptr, begin); }

NoForks::NoForks() { ForkTurn::process().take(); }

NoForks::~NoForks() { ForkTurn::process().give_back(); }

}  // namespace memfabric
