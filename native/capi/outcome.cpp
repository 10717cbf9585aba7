// SPDX-License-Identifier: Apache-2.0
#include "capi/outcome.h"

#include <exception>
#include <new>
#include <string>

#include "base/last_error.h"
#include "capi/control.h"

namespace memfabric::capi {
namespace {

thread_local std::int32_t code_of_thread = 0;

}  // namespace

std::int32_t code_of(Status status) {
    if (status != Status::Ok) code_of_thread = static_cast<std::int32_t>(status);
    return static_cast<std::int32_t>(status);
}

std::int32_t failed(const char* call, Status status) try {
    report_last_error();
    if (bridge::served() != nullptr) {
        const std::string sentence = last_error();
        control("report", call, static_cast<std::int64_t>(status), std::string_view(sentence));
        set_last_error(sentence);  // a logger of the program's own may have called us, and failed
        report_last_error();
    }
    return code_of(status);
} catch (const std::bad_alloc&) {  // no memory for the line of the log
    return code_of(status);
}

Status thrown(const char* call, const std::exception& failure) {
    if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) {
        return fail(Status::MallocFailed, "%s: no memory; pass less at a time, or give this process more", call);
    }
    return fail(Status::Error, "%s: %s", call, failure.what());
}

std::int32_t is_null(const char* call, const char* argument) {
    return failed(call, fail(Status::InvalidParam, "%s: %s is NULL", call, argument));
}

std::int32_t last_code() { return code_of_thread; }

void clear_last_code() { code_of_thread = 0; }

}  // namespace memfabric::capi
