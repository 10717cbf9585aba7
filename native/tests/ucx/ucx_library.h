// SPDX-License-Identifier: Apache-2.0
//
// The UCX that tests use: what MF_UCX_LIBRARY names, otherwise the system's.
#pragma once

#include <cstdlib>
#include <string>

#include "base/last_error.h"
#include "ucx/context.h"
#include "ucx/library.h"

namespace memfabric::tests {

// "", or why there is none here.
inline std::string load_ucx() {
    const char* chosen = std::getenv("MF_UCX_LIBRARY");
    if (ucx::Library::load({chosen == nullptr ? "" : chosen, ""}) == Status::Ok) return "";
    return take_last_error();
}

// Over loopback: nothing of a test is for others.
inline ucx::Options ucx_over_loopback() { return {"tcp", "lo"}; }

}  // namespace memfabric::tests
