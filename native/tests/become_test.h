// SPDX-License-Identifier: Apache-2.0
//
// A process of its own for a part of a test: this program once more, in a child that was forked.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace memfabric::tests {

// Runs that (disabled) test and nothing else, whatever part of all tests we are.
[[noreturn]] inline void become_test(const std::string& name) {
    unsetenv("GTEST_TOTAL_SHARDS");
    unsetenv("GTEST_SHARD_INDEX");
    const std::string filter = "--gtest_filter=" + name;
    execl("/proc/self/exe", "native_tests", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1",
          nullptr);
    _exit(1);
}

}  // namespace memfabric::tests
