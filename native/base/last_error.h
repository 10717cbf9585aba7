// SPDX-License-Identifier: Apache-2.0
//
// The calling thread's last error: one sentence that says what failed and what to do. Only failures write it; a call
// that succeeds neither reads nor clears it, so the short path never pays for it.
#pragma once

#include <string>
#include <string_view>

#include "base/api.h"
#include "base/status.h"

namespace memfabric {

// Records the sentence and returns `status`, so that a failing function ends with `return fail(Status::…, "…", …)`.
MF_API [[gnu::cold, gnu::noinline, gnu::format(printf, 2, 3)]] Status fail(Status status, const char* format, ...);

MF_API void set_last_error(std::string_view sentence);
MF_API const std::string& last_error();  // "" if this thread has none; valid until the thread's next failure
MF_API std::string take_last_error();    // returns and clears

}  // namespace memfabric
