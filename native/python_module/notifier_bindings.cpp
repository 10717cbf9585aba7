// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "base/notifier.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {

void bind_notifier(nb::module_& module) {
    nb::class_<Notifier>(module, "Notifier",
                         "One descriptor for everything that an event loop awaits. Each end has a token.")
        .def_static(
            "make",
            [] {
                std::shared_ptr<Notifier> made;
                raise_if_failed(Notifier::make(made));
                return made;
            },
            "A new one. Raises FabricError.")
        .def("fileno", &Notifier::fd, "Readable when something has ended.")
        .def("take", &Notifier::take, "The tokens of what has ended since the last call; then it is not readable.")
        .def("close", &Notifier::close, "Close the descriptor. What ends later is told to nobody.");
}

}  // namespace memfabric::python
