// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <cstring>

#include "tests/collectives/host_world.h"

using namespace memfabric;
using namespace memfabric::tests;

namespace {

// The store between two hosts, as a lock in this process.
class TwoHosts {
public:
    class Side final : public InterHostExchange {
    public:
        Side(TwoHosts& between, std::size_t host, std::vector<std::vector<std::uint32_t>> hosts)
            : between_(between), host_(host), hosts_(std::move(hosts)) {}
        Status exchange(std::uint32_t bytes, const std::string& complaint, const std::byte* ours, std::byte* everybody,
                        std::chrono::steady_clock::time_point) override {
            if (!complaint.empty()) return fail(Status::InvalidParam, "%s", complaint.c_str());
            between_.exchange(host_, std::vector<std::byte>(ours, ours + hosts_[host_].size() * bytes));
            for (std::size_t host = 0; host < 2; ++host) {
                for (std::size_t i = 0; i < hosts_[host].size() && bytes != 0; ++i) {
                    std::memcpy(everybody + hosts_[host][i] * bytes, between_.data_[host].data() + i * bytes, bytes);
                }
            }
            between_.exchange(host_, {});
            return Status::Ok;
        }

    private:
        TwoHosts& between_;
        std::size_t host_;
        std::vector<std::vector<std::uint32_t>> hosts_;
    };

private:
    void exchange(std::size_t host, std::vector<std::byte> data) {
        const unsigned before = arrived_.load() / 2;
        if (!data.empty()) data_[host] = std::move(data);
        if (arrived_.fetch_add(1) % 2 == 1) return;
        while (arrived_.load() / 2 == before) std::this_thread::yield();
    }

    std::atomic<unsigned> arrived_{0};
    std::vector<std::byte> data_[2];
};

}  // namespace

TEST(InterHostExchange, hosts_combine_and_their_leaders_exchange) {
    const std::vector<std::vector<std::uint32_t>> hosts{{0, 2}, {1, 3, 4}};
    const HostWorld world(5, hosts);
    TwoHosts between;
    TwoHosts::Side sides[2] = {{between, 0, hosts}, {between, 1, hosts}};
    world.run([&](std::uint32_t rank) {
        InterHostExchange* inter_host = &sides[rank == 0 || rank == 2 ? 0 : 1];
        for (std::uint64_t round = 0; round < 100; ++round) {
            const auto mine = letter(rank, round);
            std::array<std::array<std::uint64_t, 2>, 5> all{};
            EXPECT_EQ(world.groups[rank]->all_gather(reinterpret_cast<const std::byte*>(&mine), sizeof mine,
                                                     reinterpret_cast<std::byte*>(&all), kLong, inter_host),
                      Status::Ok);
            for (std::uint32_t peer = 0; peer < 5; ++peer) EXPECT_EQ(all[peer], letter(peer, round));
            EXPECT_EQ(world.groups[rank]->barrier(kLong, inter_host), Status::Ok);
        }
    });
}

namespace {

class FailingExchange final : public InterHostExchange {
public:
    Status exchange(std::uint32_t, const std::string&, const std::byte*, std::byte*,
                    std::chrono::steady_clock::time_point) override {
        return fail(Status::Timeout, "host 1 did not arrive");
    }
};

}  // namespace

TEST(InterHostExchange, that_fails_fails_the_round_on_every_rank) {
    const HostWorld world(3, {{0, 1}, {2}});
    FailingExchange failing;
    HostWorld::run({0, 1}, [&](std::uint32_t rank) {
        for (int round = 0; round < 3; ++round) {
            EXPECT_EQ(world.groups[rank]->barrier(kLong, &failing), Status::Timeout);
            EXPECT_EQ(last_error(), "host 1 did not arrive");
        }
    });
}
