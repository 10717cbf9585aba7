// SPDX-License-Identifier: Apache-2.0
#include "python_module/interpreter/failure_report.h"

#include <nanobind/stl/string.h>

#include <string>

#include "base/last_error.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

PyObject* failure_function = nullptr;  // kept for ever: any call may fail

}  // namespace

bool report_failure(const char* call, Status status) {
    report_last_error();
    if (failure_function == nullptr) return true;
    const std::string sentence = last_error();
    const nb::object arguments = nb::make_tuple(call, static_cast<int>(status), sentence);
    PyObject* const result = call_from_core(failure_function, arguments.ptr());
    set_last_error(sentence);  // a logger of the program's own may have called us, and failed
    report_last_error();
    if (result != nullptr) {
        Py_DECREF(result);
        return true;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
    PyErr_WriteUnraisable(failure_function);
    return true;
}

void report_and_raise(const char* call, Status status) {
    code_of(call, status);
    raise(status, last_error());
}

void bind_failure_report(nb::module_& module) {
    module.def(
        "_set_failure_handler", [](const nb::callable& handler) { failure_function = handler.inc_ref().ptr(); },
        nb::arg("handler"), "`handler(call, code, sentence)` runs for every public call that fails, on its thread.");
}

}  // namespace memfabric::python
