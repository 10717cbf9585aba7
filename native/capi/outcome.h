// SPDX-License-Identifier: Apache-2.0
//
// What a call of the C interface answers. Every failure leaves its code and its sentence with the thread, and a line in
// the log.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace memfabric::capi {

// The code of a call that the control plane carried out: it has been logged there.
std::int32_t code_of(Status status);

// The code of a call that the control plane knows nothing of. `call` names it in the log.
[[gnu::cold, gnu::noinline]] std::int32_t failed(const char* call, Status status);
inline std::int32_t outcome(const char* call, Status status) { return status == Status::Ok ? 0 : failed(call, status); }

// `argument` of `call` is NULL.
[[gnu::cold, gnu::noinline]] std::int32_t is_null(const char* call, const char* argument);

std::int32_t last_code();
void clear_last_code();

}  // namespace memfabric::capi
