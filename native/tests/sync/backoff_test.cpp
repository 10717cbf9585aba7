// SPDX-License-Identifier: Apache-2.0
#include "sync/backoff.h"

#include "tests/assertions.h"

using namespace memfabric;

namespace {

// How often one wait for something that does not happen lets others run, when each of that takes so long.
int yields_of_a_wait(AdaptiveWait& wait, bool is_short) {
    int yields = 0;
    const bool done = wait.poll([] { return false; },
                                [&] {
                                    ++yields;
                                    return is_short;
                                });
    EXPECT_FALSE(done);
    return yields;
}

// Waits that do not yield at all, until one does.
int waits_without_yields(AdaptiveWait& wait, bool is_short) {
    int waits = 0;
    while (yields_of_a_wait(wait, is_short) == 0) ++waits;
    return waits;
}

}  // namespace

TEST(Backoff, short_yields_are_repeated_until_it_pays_to_sleep) {
    AdaptiveWait wait(true);
    EXPECT_EQ(yields_of_a_wait(wait, true), 100);
    EXPECT_EQ(yields_of_a_wait(wait, true), 100);
}

TEST(Backoff, long_yield_is_the_last_one_for_many_waits) {
    AdaptiveWait wait(true);
    EXPECT_EQ(yields_of_a_wait(wait, false), 1);
    EXPECT_EQ(waits_without_yields(wait, false), 64);
    EXPECT_EQ(waits_without_yields(wait, false), 128);
    EXPECT_EQ(waits_without_yields(wait, true), 256);
    EXPECT_EQ(yields_of_a_wait(wait, false), 1);  // a good one between has made it forget
    EXPECT_EQ(waits_without_yields(wait, false), 64);
}

TEST(Backoff, adaptive_wait_ends_with_what_it_waits_for) {
    AdaptiveWait wait(false);
    int looks = 0;
    EXPECT_TRUE(wait.poll([&] { return ++looks == 150; }, [] { return true; }));  // while it spins
    EXPECT_EQ(looks, 150);
    looks = 0;
    EXPECT_TRUE(wait.poll([&] { return ++looks == 250; }, [] { return true; }));  // while it yields
    EXPECT_EQ(looks, 250);
    bool happened = false;
    EXPECT_TRUE(wait.poll([&] { return happened; },
                          [&] {
                              happened = true;
                              return false;
                          }));
}
