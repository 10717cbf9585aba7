// SPDX-License-Identifier: Apache-2.0
//
// Limits that several rooms keep. Python reads them from the module (python_module/limits_bindings.cpp), so that each
// number is written once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace memfabric {

inline constexpr std::uint32_t kMaxRanks = 1024;             // of a cluster, and of an object
inline constexpr std::uint32_t kMaxGatherBytes = 64 * 1024;  // from each rank, in shared memory and through the store
inline constexpr int kBacklog = kMaxRanks;                   // of what listens: all may connect in the same instant

// A call that waits says so in the log: the first time, and the longest pause until it says so again.
inline constexpr std::chrono::seconds kFirstWaitingNotice{2};
inline constexpr std::chrono::seconds kLongestWaitingPause{60};
inline constexpr std::size_t kShownRanks = 16;  // that a sentence names

inline constexpr std::chrono::seconds kFarewell{1};  // for the last answers of others to whoever leaves or gives up

// A notification goes as one packet, and its receiver's service thread reads it between first contacts: it says that
// something is there. What is larger belongs into registered memory.
inline constexpr std::uint32_t kMaxNotificationBytes = 32 * 1024;
// What an engine keeps until its program takes it; then senders are refused. Both together bound its memory.
inline constexpr std::uint32_t kMaxQueuedNotifications = 16 * 1024;
inline constexpr std::uint32_t kMaxQueuedNotificationBytes = 16 * 1024 * 1024;

}  // namespace memfabric
