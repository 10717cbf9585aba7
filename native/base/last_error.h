// SPDX-License-Identifier: Apache-2.0
//
// The calling thread's last error: one sentence that says what failed and what to do. Only failures write it; a call
// that succeeds neither reads nor clears it, so the short path never pays for it. Where memory for the sentence is
// missing there is none.
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

// A failure that is handled, or wrapped, is none of the call's: returns its sentence, and the last one that was
// reported is the last error again.
MF_API std::string take_last_error();
// A call of the program's has ended with the last error: it stays until another one does.
MF_API void report_last_error();

MF_API void clear_last_error();

}  // namespace memfabric
