// SPDX-License-Identifier: Apache-2.0
//
// How long UCX is looked at before a thread sleeps: a sleeper is woken within 50 to 100 us on a virtual machine.
#pragma once

#include <chrono>

namespace memfabric::ucx {

class Spin {
public:
    void begin() { began_ = std::chrono::steady_clock::now(); }
    bool goes_on() const { return std::chrono::steady_clock::now() - began_ < kLongest; }

private:
    static constexpr std::chrono::microseconds kLongest{50};

    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace memfabric::ucx
