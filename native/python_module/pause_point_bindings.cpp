// SPDX-License-Identifier: Apache-2.0
//
// The pause points, for Python code that has some and for tests that hold them.
#include <nanobind/stl/string.h>

#include <chrono>
#include <string>

#include "base/pause_point.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"

namespace nb = nanobind;

namespace memfabric::python {

void bind_pause_point(nb::module_& module) {
    module.def(
        "_pause_point",
        [](const char* name) {
            const ReleasedGil released;
            PausePoint::reach(name);
        },
        nb::arg("name"), "A place where a test can hold this thread; nothing happens otherwise.");
    module.def(
        "_hold_at", [](const std::string& name) { PausePoint::hold(name); }, nb::arg("name"),
        "For tests: whoever reaches that pause point from now on waits there.");
    module.def(
        "_wait_until_held",
        [](const std::string& name, double timeout_s) {
            const ReleasedGil released;
            return PausePoint::wait_until_held(
                name, std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout_s)));
        },
        nb::arg("name"), nb::arg("timeout_s"), "For tests: True as soon as a thread waits there.");
    module.def(
        "_let_pass_at", [](const std::string& name) { PausePoint::let_pass(name); }, nb::arg("name"),
        "For tests: threads that wait there go on, later ones wait.");
    module.def(
        "_release_at", [](const std::string& name) { PausePoint::release(name); }, nb::arg("name"),
        "For tests: threads that wait there go on.");
}

}  // namespace memfabric::python
