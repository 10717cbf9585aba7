// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "base/last_error.h"
#include "python_module/bindings.h"

namespace nb = nanobind;

namespace memfabric::python {

void bind_last_error(nb::module_& module) {
    module.def(
        "set_last_error",
        [](std::string_view sentence) {
            set_last_error(sentence);
            report_last_error();
        },
        nb::arg("sentence"), "Make the sentence this thread's last error, for a call that failed in Python.");
    module.def("last_error", &last_error, "This thread's last error, \"\" if it has none.");
    module.def("clear_last_error", &clear_last_error, "Forget this thread's last error.");
}

}  // namespace memfabric::python
