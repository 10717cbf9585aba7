// SPDX-License-Identifier: Apache-2.0
//
// The codes that Python sees. Each failure of a public call becomes a line of the log on its way; success pays nothing.
#pragma once

#include <nanobind/nanobind.h>

#include "base/status.h"

namespace memfabric::python {

// Under the GIL, for a call of the public interface that has failed and set the last error, which stays as it is.
// False with an exception set: an interrupt of the program came while the line was written.
[[gnu::cold, gnu::noinline]] bool report_failure(const char* call, Status status);

// The code for nanobind's functions. What a signal handler raised comes out instead of Interrupted.
inline int code_of(const char* call, Status status) {
    if (status == Status::Ok) [[likely]]
        return 0;
    if (status == Status::Interrupted || !report_failure(call, status)) throw nanobind::python_error();
    return static_cast<int>(status);
}

// The same for functions that CPython calls directly.
inline PyObject* code_object(const char* call, Status status) {
    if (status != Status::Ok && (status == Status::Interrupted || !report_failure(call, status))) [[unlikely]]
        return nullptr;
    return PyLong_FromLong(static_cast<int>(status));
}

// For public functions that raise.
[[noreturn, gnu::cold]] void report_and_raise(const char* call, Status status);

}  // namespace memfabric::python
