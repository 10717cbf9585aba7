// SPDX-License-Identifier: Apache-2.0
#include "base/last_error.h"

#include <string>
#include <thread>

#include "tests/check.h"

namespace memfabric {
namespace {

TEST(last_error_keeps_the_sentence_and_returns_the_status) {
    CHECK_EQ(fail(Status::NotConnected, "rank %d of %s", 3, "bm object 7"), Status::NotConnected);
    CHECK_EQ(last_error(), "rank 3 of bm object 7");
    CHECK_EQ(take_last_error(), "rank 3 of bm object 7");
    CHECK_EQ(last_error(), "");
}

TEST(last_error_is_the_threads_own) {
    set_last_error("mine");
    std::thread other([] {
        CHECK_EQ(last_error(), "");
        set_last_error("theirs");
    });
    other.join();
    CHECK_EQ(take_last_error(), "mine");
}

TEST(last_error_cuts_what_is_too_long) {
    const std::string name(5000, 'x');
    CHECK_EQ(fail(Status::Error, "%s", name.c_str()), Status::Error);
    CHECK_EQ(take_last_error().size(), std::size_t{1023});
}

}  // namespace
}  // namespace memfabric
