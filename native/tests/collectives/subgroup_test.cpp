// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "tests/collectives/host_world.h"

using namespace memfabric;
using namespace memfabric::tests;

TEST(Subgroup, meets_beside_another) {
    const HostWorld world(4);
    world.run([&](std::uint32_t rank) {
        const std::string name = rank % 2 == 0 ? "even" : "odd";
        for (std::uint64_t round = 0; round < 200; ++round) {
            Collective* subgroup = nullptr;
            ASSERT_EQ(world.groups[rank]->subgroup(name, 2, rank / 2, kLong, subgroup), Status::Ok);
            const auto mine = letter(rank, round);
            std::array<std::array<std::uint64_t, 2>, 2> all{};
            EXPECT_EQ(subgroup->all_gather(reinterpret_cast<const std::byte*>(&mine), sizeof mine,
                                           reinterpret_cast<std::byte*>(&all), Collective::Clock::now() + kLong),
                      Status::Ok);
            EXPECT_EQ(all[0], letter(rank % 2, round));
            EXPECT_EQ(all[1], letter(rank % 2 + 2, round));
        }
    });
}

TEST(Subgroup, without_the_dead_goes_on) {
    const HostWorld world(3);
    const auto meet = [&](std::uint32_t rank, const char* name) {
        Collective* subgroup = nullptr;
        const Status status = world.groups[rank]->subgroup(name, 2, rank, kLong, subgroup);
        return status != Status::Ok ? status : subgroup->barrier(Collective::Clock::now() + kLong);
    };
    HostWorld::run({0, 1}, [&](std::uint32_t rank) { EXPECT_EQ(meet(rank, "early"), Status::Ok); });
    world.groups[2]->vanish();
    while (world.groups[0]->barrier(1ms, nullptr) != Status::NotConnected) std::this_thread::yield();
    HostWorld::run({0, 1}, [&](std::uint32_t rank) {
        EXPECT_EQ(meet(rank, "early"), Status::Ok);
        EXPECT_EQ(meet(rank, "late"), Status::NotConnected);  // the dead might have been a member
    });
}

TEST(Subgroup, refuses_other_numbers) {
    const HostWorld world(3);
    Collective* subgroup = nullptr;
    ASSERT_EQ(world.groups[0]->subgroup("a", 2, 0, kLong, subgroup), Status::Ok);
    EXPECT_EQ(world.groups[0]->subgroup("a", 2, 1, kLong, subgroup), Status::InvalidParam);
    EXPECT_EQ(world.groups[1]->subgroup("a", 3, 1, kLong, subgroup), Status::InvalidParam);
    EXPECT_TRUE(contains(last_error(), "has 2 ranks, this call says 3"));
    EXPECT_EQ(world.groups[1]->subgroup("a", 2, 0, kLong, subgroup), Status::Duplicated);
    EXPECT_TRUE(contains(last_error(), "taken by rank 0"));
}

TEST(Subgroup, that_somebody_makes_for_too_long_is_a_time_out) {
    const HostWorld world(2);
    std::memcpy(world.pages[0]->group(1).name, "a", 2);
    world.pages[0]->group(1).state.store(GroupSlot::kClaimed);  // as a rank leaves it that is stopped in between
    Collective* subgroup = nullptr;
    EXPECT_EQ(world.groups[0]->subgroup("a", 2, 0, 50ms, subgroup), Status::Timeout);
    EXPECT_TRUE(contains(last_error(), "has not gone on in time"));
    world.groups[1]->vanish();
    while (world.groups[0]->barrier(1ms, nullptr) != Status::NotConnected) std::this_thread::yield();
    EXPECT_EQ(world.groups[0]->subgroup("a", 2, 0, kLong, subgroup), Status::NotConnected);
    EXPECT_TRUE(contains(last_error(), "a rank went away"));
}

TEST(Subgroup, is_one_of_a_limited_number) {
    const HostWorld world(1);
    Collective* subgroup = nullptr;
    Status status = Status::Ok;
    std::uint32_t made = 0;
    for (; status == Status::Ok && made < 100; ++made) {
        status = world.groups[0]->subgroup(std::to_string(made), 1, 0, kLong, subgroup);
    }
    EXPECT_EQ(status, Status::NoResources);
    EXPECT_GT(made, 8);
    EXPECT_TRUE(contains(last_error(), "room for"));
    EXPECT_EQ(world.groups[0]->subgroup("0", 1, 0, kLong, subgroup), Status::Ok);
}
