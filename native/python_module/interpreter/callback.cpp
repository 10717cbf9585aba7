// SPDX-License-Identifier: Apache-2.0
#include "python_module/interpreter/callback.h"

#include "base/interruption.h"
#include "base/last_error.h"

namespace nb = nanobind;

namespace memfabric::python {

Status failure_of(nb::python_error& error) {
    if (Interruption::possible() && !error.matches(PyExc_Exception)) {  // a signal handler's, on this thread
        error.restore();
        return Status::Interrupted;
    }
    const nb::object value = nb::borrow(error.value());
    set_last_error(nb::str(value).c_str());
    return nb::hasattr(value, "code") ? static_cast<Status>(nb::cast<int>(nb::int_(value.attr("code"))))
                                      : Status::Error;
}

Callback::Callback(nb::object function)
    : function_(new nb::object(std::move(function)), [](nb::object* object) {
          if (!Py_IsInitialized()) return;  // the interpreter is gone, and the object with it
          const AcquiredGil acquired;
          delete object;
      }) {}

}  // namespace memfabric::python
