// SPDX-License-Identifier: Apache-2.0
//
// A unit test framework as small as our needs:
//
//     TEST(copies_nothing_when_empty) { CHECK(used == 0); CHECK_EQ(answer(), 42); REQUIRE(pointer != nullptr); }
//
// CHECK and CHECK_EQ report and go on; REQUIRE and REQUIRE_EQ leave the test. All may be used on any thread, but the
// REQUIRE kinds only on the thread that runs the test. Run the binary with a part of a name to run only those tests.
#pragma once

#include <sstream>
#include <string>
#include <type_traits>

namespace memfabric::testing {

struct TestLeft {};  // thrown by REQUIRE, caught by the runner

bool add_test(const char* name, void (*body)());
void report_failure(const char* file, int line, const std::string& what);

template <typename T>
void print(std::ostream& out, const T& value) {
    if constexpr (std::is_enum_v<T>) {
        out << +static_cast<std::underlying_type_t<T>>(value);
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        out << +value;
    } else if constexpr (requires { out << value; }) {
        out << value;
    } else {
        out << "(" << sizeof(T) << " bytes)";
    }
}

inline bool check(bool passed, const char* text, const char* file, int line) {
    if (!passed) report_failure(file, line, text);
    return passed;
}

template <typename Left, typename Right>
bool check_equal(const Left& left, const Right& right, const char* text, const char* file, int line) {
    if (left == right) return true;
    std::ostringstream what;
    what << text << ": ";
    print(what, left);
    what << " != ";
    print(what, right);
    report_failure(file, line, what.str());
    return false;
}

}  // namespace memfabric::testing

#define TEST(name)                                                                                        \
    static void test_##name();                                                                            \
    [[maybe_unused]] static const bool added_##name = ::memfabric::testing::add_test(#name, test_##name); \
    static void test_##name()

#define CHECK(...) ::memfabric::testing::check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define CHECK_EQ(left, right) \
    ::memfabric::testing::check_equal((left), (right), #left " == " #right, __FILE__, __LINE__)
#define REQUIRE(...)                                                \
    if (!CHECK(__VA_ARGS__)) throw ::memfabric::testing::TestLeft { \
        }
#define REQUIRE_EQ(left, right)                                        \
    if (!CHECK_EQ(left, right)) throw ::memfabric::testing::TestLeft { \
        }
