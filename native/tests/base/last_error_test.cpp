// SPDX-License-Identifier: Apache-2.0
#include "base/last_error.h"

#include <string>
#include <thread>

#include "tests/assertions.h"

namespace memfabric {
namespace {

TEST(LastError, keeps_the_sentence_and_returns_the_status) {
    EXPECT_EQ(fail(Status::NotConnected, "rank %d of %s", 3, "bm object 7"), Status::NotConnected);
    EXPECT_EQ(last_error(), "rank 3 of bm object 7");
    EXPECT_EQ(take_last_error(), "rank 3 of bm object 7");
    EXPECT_EQ(last_error(), "");
}

TEST(LastError, is_the_threads_own) {
    set_last_error("mine");
    std::thread other([] {
        EXPECT_EQ(last_error(), "");
        set_last_error("theirs");
    });
    other.join();
    EXPECT_EQ(take_last_error(), "mine");
}

TEST(LastError, cuts_what_is_too_long) {
    const std::string name(5000, 'x');
    EXPECT_EQ(fail(Status::Error, "%s", name.c_str()), Status::Error);
    EXPECT_EQ(take_last_error().size(), std::size_t{1023});
}

}  // namespace
}  // namespace memfabric
