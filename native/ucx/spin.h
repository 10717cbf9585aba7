// SPDX-License-Identifier: Apache-2.0
//
// How long UCX is looked at before a thread sleeps: a sleeper is woken within 50 to 100 us on a virtual machine.
#pragma once

#include <chrono>

namespace memfabric::ucx {

// A target looks for the next request for a moment. An initiator looks for longer than a target needs to wake up:
// otherwise both would go on sleeping in turn, each too late for the other.
inline constexpr std::chrono::microseconds kTargetSpin{50};
inline constexpr std::chrono::microseconds kInitiatorSpin{200};

class Spin {
public:
    explicit Spin(std::chrono::microseconds longest) : longest_(longest) {}

    void begin() { began_ = std::chrono::steady_clock::now(); }
    bool goes_on() const { return std::chrono::steady_clock::now() - began_ < longest_; }

private:
    const std::chrono::microseconds longest_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace memfabric::ucx
