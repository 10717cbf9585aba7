// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"
#include "ucx/library.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

using PathAndVersion = std::pair<std::string, std::string>;

std::optional<PathAndVersion> loaded_ucx() {
    const ucx::Library* library = ucx::Library::loaded();
    if (library == nullptr) return std::nullopt;
    return PathAndVersion{library->path(), library->version()};
}

PathAndVersion load_ucx(const std::string& chosen, const std::string& wheel) {
    raise_if_failed(without_gil([&] { return ucx::Library::load({chosen, wheel}); }));
    return *loaded_ucx();
}

}  // namespace

void bind_ucx(nb::module_& module) {
    module.def("_load_ucx", &load_ucx, nb::arg("chosen"), nb::arg("wheel"),
               "Load UCX, once for the process, and return (path, version): the file `chosen`, or one that is loaded\n"
               "already, the system's, or the file `wheel`; \"\" = none. Raises FabricError.");
    module.def("_ucx", &loaded_ucx, "(path, version) of the UCX that was loaded, or None.");
}

}  // namespace memfabric::python
