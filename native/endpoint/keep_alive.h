// SPDX-License-Identifier: Apache-2.0
//
// How a TCP connection notices that the other host has vanished: nothing closes it then.
#pragma once

#include <chrono>

#include "base/api.h"

namespace memfabric {

// After so long without a sign of life a connection ends, or after 5 s if that is longer; for those that are made from
// now on. 3 s if nobody says.
MF_API void set_host_timeout(std::chrono::milliseconds timeout);

void keep_alive(int fd);

}  // namespace memfabric
