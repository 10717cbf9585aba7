// SPDX-License-Identifier: Apache-2.0
//
// Failures of the control plane's calls: Python raises memfabric_hybrid.errors.FabricError for them.
#pragma once

#include <string>

#include "base/status.h"

namespace memfabric::python {

// What a signal handler raised comes out as it is. Otherwise moves the thread's last error into the exception: a
// failure that Python handles must not look like one it did not. api/boundary sets it again for calls that raise.
[[noreturn]] void raise(Status status);

// The exception of a failure that was reported.
[[noreturn]] void raise(Status status, const std::string& sentence);

inline void raise_if_failed(Status status) {
    if (status != Status::Ok) raise(status);
}

}  // namespace memfabric::python
