// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <random>

#include "base/cpu.h"
#include "tests/collectives/host_world.h"

using namespace memfabric;
using namespace memfabric::tests;

TEST(Departure, death_in_a_barrier_is_told_at_once) {
    const HostWorld world(3);
    const auto began = std::chrono::steady_clock::now();
    world.run([&](std::uint32_t rank) {
        if (rank == 1) {
            world.wait_for_arrivals(2);
            world.groups[1]->vanish();
            return;
        }
        EXPECT_EQ(world.groups[rank]->barrier(kLong, nullptr), Status::NotConnected);
        EXPECT_TRUE(contains(last_error(), "rank 1 died"));
    });
    EXPECT_LT(std::chrono::steady_clock::now() - began, kLong / 2);
    EXPECT_EQ(world.groups[0]->barrier(kLong, nullptr), Status::NotConnected);
}

TEST(Departure, neighbours_that_die_together_are_all_noticed) {
    const HostWorld world(5);
    std::atomic<bool> awaited{false};
    world.run([&](std::uint32_t rank) {
        if (rank == 2) {
            world.wait_for_arrivals(2);  // which take their arrivals back with the first death
            awaited = true;
        }
        if (rank >= 2) {
            while (!awaited) std::this_thread::yield();
            world.groups[rank]->vanish();
            return;
        }
        EXPECT_EQ(world.groups[rank]->barrier(kLong, nullptr), Status::NotConnected);
        EXPECT_TRUE(contains(last_error(), "died"));
    });
}

TEST(Departure, destroying_rank_is_named_to_those_who_wait) {
    const HostWorld world(2);
    world.run([&](std::uint32_t rank) {
        if (rank == 1) {
            world.wait_for_arrivals(1);
            world.groups[1]->leave();
            EXPECT_EQ(world.groups[1]->barrier(kLong, nullptr), Status::InvalidParam);
            return;
        }
        EXPECT_EQ(world.groups[0]->barrier(kLong, nullptr), Status::NotConnected);
        EXPECT_TRUE(contains(last_error(), "rank 1 has left"));
    });
}

TEST(Departure, declared_departure_wakes_the_waiting) {
    const HostWorld world(2);
    world.run([&](std::uint32_t rank) {
        if (rank == 1) {
            world.wait_for_arrivals(1);
            world.groups[0]->declare_gone(1, "rank 1 did not answer the store");
            return;
        }
        EXPECT_EQ(world.groups[0]->barrier(kLong, nullptr), Status::NotConnected);
        EXPECT_TRUE(contains(last_error(), "rank 1 did not answer the store"));
    });
}

// Each rank dies after some round: whoever lives on has succeeded in the same rounds as all others that live on.
TEST(Departure, deaths_at_random_leave_the_living_in_the_same_round) {
    for (unsigned seed = 0; seed < 30; ++seed) {
        const HostWorld world(4);
        std::mt19937 random(seed);
        const auto victim = static_cast<std::uint32_t>(random() % 4);
        const auto last_round = static_cast<unsigned>(random() % 40);
        std::array<std::atomic<unsigned>, 4> passed{};
        world.run([&](std::uint32_t rank) {
            while (true) {
                if (rank == victim && passed[rank].load() == last_round) {
                    world.groups[rank]->vanish();
                    return;
                }
                if (world.groups[rank]->barrier(kLong, nullptr) != Status::Ok) return;
                passed[rank].fetch_add(1);
            }
        });
        for (const auto& rounds : passed) EXPECT_EQ(rounds.load(), last_round) << "seed " << seed;
    }
}

// The news comes while the waiting rank looks, lets others run, falls asleep or sleeps: it is never slept through.
TEST(Departure, departures_at_any_moment_are_heard) {
    for (int delay_us = 0; delay_us < 300; delay_us += 3) {
        const HostWorld world(2);
        world.run([&](std::uint32_t rank) {
            if (rank == 1) {
                const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(delay_us);
                while (std::chrono::steady_clock::now() < until) cpu_relax();
                world.groups[0]->declare_gone(1, "rank 1 did not answer the store");
                return;
            }
            EXPECT_EQ(world.groups[0]->barrier(kLong, nullptr), Status::NotConnected);
        });
    }
}

TEST(Departure, of_a_rank_that_the_object_does_not_have_is_a_sentence) {
    const HostWorld world(2);
    for (const std::uint32_t rank : {2U, 9999U, 1U << 22, ~0U}) {
        world.groups[0]->declare_gone(rank, "somebody says so");
        EXPECT_EQ(world.groups[0]->complaint(rank), "rank " + std::to_string(rank) + " does not belong to the object");
    }
    EXPECT_TRUE(contains(world.groups[0]->complaint(1), "rank 1 is gone"));
}

TEST(Departure, whoever_left_because_of_another_is_not_the_one_to_blame) {
    const HostWorld world(4);
    world.groups[1]->declare_gone(3, "rank 3 did not answer the store");  // only rank 1 knows
    EXPECT_EQ(world.groups[1]->barrier(kLong, nullptr), Status::NotConnected);
    world.groups[1]->leave();
    EXPECT_EQ(world.groups[0]->barrier(kLong, nullptr), Status::NotConnected);
    EXPECT_TRUE(contains(last_error(), "rank 3 is gone: another rank left because of it"));
    world.groups[0]->leave();
    EXPECT_EQ(world.groups[2]->barrier(kLong, nullptr), Status::NotConnected);
    EXPECT_TRUE(contains(last_error(), "rank 3 is gone"));
}
