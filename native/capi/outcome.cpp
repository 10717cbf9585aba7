// SPDX-License-Identifier: Apache-2.0
#include "capi/outcome.h"

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

std::int32_t failed(const char* call, Status status) {
    const std::string sentence = last_error();
    if (bridge::served() != nullptr) {
        control("report", call, static_cast<std::int64_t>(status), std::string_view(sentence));
        set_last_error(sentence);  // a logger of the program's own may have called us, and failed
    }
    return code_of(status);
}

std::int32_t is_null(const char* call, const char* argument) {
    return failed(call, fail(Status::InvalidParam, "%s: %s is NULL", call, argument));
}

std::int32_t last_code() { return code_of_thread; }

void clear_last_code() { code_of_thread = 0; }

}  // namespace memfabric::capi
