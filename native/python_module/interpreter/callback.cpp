// SPDX-License-Identifier: Apache-2.0
#include "python_module/interpreter/callback.h"

#include "base/interruption.h"
#include "base/last_error.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

// As the interpreter runs signal handlers: between two instructions of the main thread.
int raise_pending(void* owned) {
    const nb::object raised = nb::steal(static_cast<PyObject*>(owned));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    return -1;
}

// Codes are those of the library's own failures: others have numbers of that name, too, as SystemExit has.
Status code_in(const nb::object& raised) {
    if (!nb::isinstance(raised, nb::module_::import_("memfabric_hybrid.errors").attr("FabricError"))) {
        return Status::Error;
    }
    const auto code = static_cast<Status>(nb::cast<int>(nb::int_(raised.attr("code"))));
    return code == Status::Ok ? Status::Error : code;
}

}  // namespace

Status hand_to_program(nb::python_error& error, const char* call) {
    const nb::object raised = nb::borrow(error.value());
    const Status status = fail(Status::Error, "%s did not finish: %s came out of a function of the program's own", call,
                               Py_TYPE(raised.ptr())->tp_name);
    const bool has_program = is_main_thread() && PyEval_GetFrame() != nullptr;
    if (has_program && Py_AddPendingCall(raise_pending, raised.inc_ref().ptr()) == 0) return status;
    if (has_program) raised.dec_ref();
    error.restore();
    PyErr_WriteUnraisable(nullptr);
    return status;
}

Status failure_of(nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) {  // a signal handler's, on this thread
        if (!Interruption::possible()) return hand_to_program(error, "a call into Python");
        error.restore();
        return Status::Interrupted;
    }
    try {
        const nb::object value = nb::borrow(error.value());
        set_last_error(nb::str(value).c_str());
        return code_in(value);
    } catch (const std::exception& other) {  // the exception's own functions raise
        return fail(Status::Error, "a call into Python raised something that cannot be shown: %s", other.what());
    }
}

Callback::Callback(nb::object function)
    : function_(new nb::object(std::move(function)), [](nb::object* object) {
          if (!Py_IsInitialized()) return;  // the interpreter is gone, and the object with it
          const AcquiredGil acquired;
          delete object;
      }) {}

}  // namespace memfabric::python
