// SPDX-License-Identifier: Apache-2.0
#include "capi/handles.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tests/assertions.h"

namespace memfabric::capi {
namespace {

struct Thing {
    int number;
};
using Things = Handles<Thing, 5>;
using OtherThings = Handles<Thing, 6>;

void* pointer(std::uint64_t handle) { return reinterpret_cast<void*>(handle); }

std::uint64_t published(int number) {
    const std::uint64_t handle = Things::process().reserve();
    Things::process().publish(handle, std::make_shared<Thing>(Thing{number}));
    return handle;
}

TEST(Handles, lead_to_their_object) {
    const std::uint64_t first = published(1);
    const std::uint64_t second = published(2);
    EXPECT_EQ(Things::process().find(pointer(first))->number, 1);
    EXPECT_EQ(Things::process().find(pointer(second))->number, 2);
    EXPECT_EQ(Things::process().find(pointer(first))->number, 1);
    Things::process().remove_all();
}

TEST(Handles, are_invalid_once_removed) {
    const std::uint64_t handle = published(1);
    ASSERT_NE(Things::process().find(pointer(handle)), nullptr);
    Things::process().remove(handle);
    EXPECT_EQ(Things::process().find(pointer(handle)), nullptr);
    const std::uint64_t next = published(2);  // in the same slot
    EXPECT_NE(next, handle);
    EXPECT_EQ(Things::process().find(pointer(handle)), nullptr);
    Things::process().remove(handle);  // too late: it is another's slot now
    EXPECT_EQ(Things::process().find(pointer(next))->number, 2);
    Things::process().remove_all();
}

TEST(Handles, that_somebody_made_up_lead_nowhere) {
    const std::uint64_t handle = published(1);
    int local = 0;
    const std::uintptr_t all_bits = ~std::uintptr_t{0};
    for (const void* const nonsense :
         {static_cast<const void*>(nullptr), static_cast<const void*>(&local),
          static_cast<const void*>(pointer(handle + 1)), static_cast<const void*>(pointer(all_bits)),
          static_cast<const void*>(pointer(handle + (1 << 16)))}) {
        EXPECT_EQ(Things::process().find(nonsense), nullptr) << nonsense;
    }
    EXPECT_EQ(OtherThings::process().find(pointer(handle)), nullptr) << "of another kind";
    Things::process().remove_all();
}

TEST(Handles, keep_what_a_thread_uses) {
    const std::uint64_t handle = Things::process().reserve();
    auto thing = std::make_shared<Thing>(Thing{7});
    const std::weak_ptr<Thing> watched = thing;
    Things::process().publish(handle, std::move(thing));
    Thing* const found = Things::process().find(pointer(handle));
    Things::process().remove(handle);
    ASSERT_FALSE(watched.expired());
    EXPECT_EQ(found->number, 7);
    EXPECT_EQ(Things::process().find(pointer(handle)), nullptr);
    EXPECT_TRUE(watched.expired()) << "it was the last one";
}

TEST(Handles, are_given_up_to_a_limit) {
    std::vector<std::uint64_t> handles;
    for (std::size_t i = 0; i < Things::kMost; ++i) handles.push_back(Things::process().reserve());
    EXPECT_NE(handles.back(), 0u);
    EXPECT_EQ(Things::process().reserve(), 0u);
    for (const std::uint64_t handle : handles) Things::process().remove(handle);
    EXPECT_NE(published(1), 0u);
    Things::process().remove_all();
}

TEST(Handles, are_found_while_others_come_and_go) {
    const std::uint64_t stays = published(99);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 2000; ++round) {
                const std::uint64_t own = published(i);
                EXPECT_EQ(Things::process().find(pointer(own))->number, i);
                EXPECT_EQ(Things::process().find(pointer(stays))->number, 99);
                Things::process().remove(own);
                EXPECT_EQ(Things::process().find(pointer(own)), nullptr);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    Things::process().remove_all();
}

}  // namespace
}  // namespace memfabric::capi
