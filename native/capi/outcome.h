// SPDX-License-Identifier: Apache-2.0
//
// What a call of the C interface answers. Every failure leaves its code and its sentence with the thread, and a line in
// the log.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>

#include "base/status.h"

namespace memfabric::capi {

// The code of a call that the control plane carried out: it has been logged there.
std::int32_t code_of(Status status);

// The code of a call that the control plane knows nothing of. `call` names it in the log.
[[gnu::cold, gnu::noinline]] std::int32_t failed(const char* call, Status status);
inline std::int32_t outcome(const char* call, Status status) { return status == Status::Ok ? 0 : failed(call, status); }

// What was thrown, as a status and the last error: C callers must see no exception.
[[gnu::cold, gnu::noinline]] Status thrown(const char* call, const std::exception& failure);

// The code of `run()`, which may run out of memory.
template <std::invocable Run>
std::int32_t outcome(const char* call, Run run) try {
    return outcome(call, run());
} catch (const std::exception& failure) {
    return failed(call, thrown(call, failure));
}

// `argument` of `call` is NULL.
[[gnu::cold, gnu::noinline]] std::int32_t is_null(const char* call, const char* argument);

std::int32_t last_code();
void clear_last_code();

}  // namespace memfabric::capi
