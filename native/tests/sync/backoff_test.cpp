// SPDX-License-Identifier: Apache-2.0
#include "sync/backoff.h"

#include "tests/check.h"

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
    CHECK(!done);
    return yields;
}

// Waits that do not yield at all, until one does.
int waits_without_yields(AdaptiveWait& wait, bool is_short) {
    int waits = 0;
    while (yields_of_a_wait(wait, is_short) == 0) ++waits;
    return waits;
}

}  // namespace

TEST(short_yields_are_repeated_until_it_pays_to_sleep) {
    AdaptiveWait wait(true);
    CHECK_EQ(yields_of_a_wait(wait, true), 100);
    CHECK_EQ(yields_of_a_wait(wait, true), 100);
}

TEST(long_yield_is_the_last_one_for_many_waits) {
    AdaptiveWait wait(true);
    CHECK_EQ(yields_of_a_wait(wait, false), 1);
    CHECK_EQ(waits_without_yields(wait, false), 64);
    CHECK_EQ(waits_without_yields(wait, false), 128);
    CHECK_EQ(waits_without_yields(wait, true), 256);
    CHECK_EQ(yields_of_a_wait(wait, false), 1);  // a good one between has made it forget
    CHECK_EQ(waits_without_yields(wait, false), 64);
}

TEST(adaptive_wait_ends_with_what_it_waits_for) {
    AdaptiveWait wait(false);
    int looks = 0;
    CHECK(wait.poll([&] { return ++looks == 150; }, [] { return true; }));  // while it spins
    CHECK_EQ(looks, 150);
    looks = 0;
    CHECK(wait.poll([&] { return ++looks == 250; }, [] { return true; }));  // while it yields
    CHECK_EQ(looks, 250);
    bool happened = false;
    CHECK(wait.poll([&] { return happened; },
                    [&] {
                        happened = true;
                        return false;
                    }));
}
