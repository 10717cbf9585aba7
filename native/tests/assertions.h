// SPDX-License-Identifier: Apache-2.0
//
// GoogleTest, and what our tests assert with beyond it. Every test includes this, not gtest.h: whoever compares a
// status must know how it is printed.
//
// EXPECT_* reports and goes on; it may be used on any thread. ASSERT_* leaves the function it is in as well: it is for
// the bodies of tests. What they call says require(), which leaves the whole test, on the thread that runs it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <iosfwd>
#include <source_location>
#include <span>
#include <string>

#include "base/status.h"

namespace memfabric {

void PrintTo(Status status, std::ostream* out);  // the name is GoogleTest's

namespace tests {

void require(bool holds, std::source_location where = std::source_location::current());
void require_ok(Status status, std::source_location where = std::source_location::current());

::testing::AssertionResult contains(const std::string& text, const std::string& part);

// What bytes differ, and where: the elements of a large container that GoogleTest shows are seldom those.
::testing::AssertionResult same_bytes(std::span<const std::byte> found, std::span<const std::byte> wanted);

template <typename Found, typename Wanted>
::testing::AssertionResult same_bytes(const Found& found, const Wanted& wanted) {
    return same_bytes(std::as_bytes(std::span(found)), std::as_bytes(std::span(wanted)));
}

// The status must come with a sentence that says this; without a failure there must be no sentence.
::testing::AssertionResult says(const std::string& part);

}  // namespace tests
}  // namespace memfabric
