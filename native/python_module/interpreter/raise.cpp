// SPDX-License-Identifier: Apache-2.0
#include "python_module/interpreter/raise.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "base/last_error.h"

namespace nb = nanobind;

namespace memfabric::python {

void raise(Status status) {
    if (status == Status::Interrupted) throw nb::python_error();
    raise(status, take_last_error());
}

void raise(Status status, const std::string& sentence) {
    const nb::object failure_of = nb::module_::import_("memfabric_hybrid.errors").attr("failure_of");
    const nb::object error = failure_of(static_cast<int>(status), sentence);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

}  // namespace memfabric::python
