// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a host as threads of one process: one mapping of the control page for all, so that the thread sanitizer
// sees every access, and a liveness thread for each, which can end as a killed process's does.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/last_error.h"
#include "collectives/host_group.h"
#include "tests/assertions.h"

namespace memfabric::tests {

using namespace std::chrono_literals;

constexpr auto kLong = 20s;  // nothing in these tests takes so long, unless somebody sleeps through what it waits for

inline std::array<std::uint64_t, 2> letter(std::uint32_t rank, std::uint64_t round) { return {rank, round}; }

struct HostWorld {
    explicit HostWorld(std::uint32_t ranks) : HostWorld(ranks, {all(ranks)}) {}

    // Several hosts: each has a control page of its own.
    HostWorld(std::uint32_t ranks, const std::vector<std::vector<std::uint32_t>>& hosts) : groups(ranks) {
        for (const auto& members : hosts) {
            int fd = -1;
            std::shared_ptr<ControlPage> page;
            require_ok(ControlPage::create(ranks, fd));
            require_ok(ControlPage::open(fd, ranks, page));
            ::close(fd);
            for (const std::uint32_t rank : members) {
                require_ok(HostGroup::join(page, {rank, ranks, members, "shm object 0"}, groups[rank]));
            }
            pages.push_back(page);
        }
    }

    static std::vector<std::uint32_t> all(std::uint32_t ranks) {
        std::vector<std::uint32_t> members(ranks);
        std::iota(members.begin(), members.end(), 0U);
        return members;
    }

    // Runs `body(rank)` for all ranks at the same time.
    void run(const std::function<void(std::uint32_t)>& body) const {
        run(all(static_cast<std::uint32_t>(groups.size())), body);
    }

    static void run(const std::vector<std::uint32_t>& ranks, const std::function<void(std::uint32_t)>& body) {
        std::vector<std::thread> threads;
        threads.reserve(ranks.size());
        for (const std::uint32_t rank : ranks) threads.emplace_back([&body, rank] { body(rank); });
        for (std::thread& thread : threads) thread.join();
    }

    // Until so many ranks of the first host wait in a round of all.
    void wait_for_arrivals(std::uint32_t count) const {
        const auto waiting = [&] { return pages[0]->group(0).arrivals.load() & 0xffff; };
        while (waiting() < count) std::this_thread::yield();
    }

    std::vector<std::shared_ptr<ControlPage>> pages;
    std::vector<std::unique_ptr<HostGroup>> groups;
};

}  // namespace memfabric::tests
