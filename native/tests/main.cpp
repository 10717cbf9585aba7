// SPDX-License-Identifier: Apache-2.0
//
// Runs the tests that check.h collected: native_tests [part-of-a-name ...]
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "tests/check.h"

namespace memfabric::testing {
namespace {

struct Test {
    const char* name;
    void (*body)();
};

std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

std::atomic<unsigned> failed_checks{0};

void run(const Test& test) {
    try {
        test.body();
    } catch (const TestLeft&) {
        // The failed REQUIRE has already been reported.
    } catch (const std::exception& error) {
        report_failure(test.name, 0, std::string("unexpected exception: ") + error.what());
    }
}

bool selected(const Test& test, int argument_count, char** arguments) {
    for (int i = 1; i < argument_count; ++i) {
        if (std::strstr(test.name, arguments[i]) != nullptr) return true;
    }
    return argument_count == 1;
}

}  // namespace

bool add_test(const char* name, void (*body)()) {
    tests().push_back({name, body});
    return true;
}

void report_failure(const char* file, int line, const std::string& what) {
    failed_checks.fetch_add(1);
    std::printf("%s:%d: %s\n", file, line, what.c_str());
}

}  // namespace memfabric::testing

int main(int argument_count, char** arguments) {
    using namespace memfabric::testing;
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a crash or a forked child must not lose or repeat lines
    unsigned passed = 0;
    unsigned failed = 0;
    for (const Test& test : tests()) {
        if (!selected(test, argument_count, arguments)) continue;
        failed_checks = 0;
        const auto start = std::chrono::steady_clock::now();
        run(test);
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        const bool test_passed = failed_checks == 0;
        test_passed ? ++passed : ++failed;
        std::printf("%s %s (%.0f ms)\n", test_passed ? "pass" : "FAIL", test.name, took.count());
    }
    std::printf("%u passed, %u failed\n", passed, failed);
    return failed == 0 && passed != 0 ? 0 : 1;
}
