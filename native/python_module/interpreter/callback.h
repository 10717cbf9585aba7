// SPDX-License-Identifier: Apache-2.0
//
// A Python function that the core keeps and calls, from its depths and on any thread.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "base/status.h"
#include "python_module/interpreter/gil.h"

namespace memfabric::python {

// What the function has just raised, as a status and the thread's last error. What a signal handler raised stays
// pending instead, and the status is Interrupted; where nobody waits for that status, it is handed to the program.
Status failure_of(nanobind::python_error& error);

// For a thread that runs C code of a Python program: what one of the program's signal handlers raised meanwhile in
// `call` is raised there, once that code has returned. The call has failed.
Status hand_to_program(nanobind::python_error& error, const char* call);

// Copied, called and dropped with or without the lock.
class Callback {
public:
    explicit Callback(nanobind::object function);

    // `take(answer)` gets what it returned, with the lock held, and says what to make of it.
    template <typename Take, typename... Arguments>
    Status call(Take take, const Arguments&... arguments) const {
        if (const Status status = check_interpreter(); status != Status::Ok) return status;
        const AcquiredGil acquired;
        try {
            const nanobind::object packed = nanobind::make_tuple(arguments...);
            PyObject* const answer = call_from_core(function_->ptr(), packed.ptr());
            if (answer == nullptr) throw nanobind::python_error();
            return take(nanobind::steal(answer));
        } catch (nanobind::python_error& error) {
            return failure_of(error);
        }
    }

private:
    std::shared_ptr<nanobind::object> function_;
};

}  // namespace memfabric::python
