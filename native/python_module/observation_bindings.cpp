// SPDX-License-Identifier: Apache-2.0
//
// What the core tells about itself: notices for the log, and how much went which way.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "base/blocked_signals.h"
#include "base/notice.h"
#include "base/traffic.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "sync/rcu.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

PyObject* notice_function = nullptr;  // kept for ever: a notice may come at any time

// On a thread of its own: whoever has something to say cannot wait for the interpreter. Notices are rare.
void pass_on(const char* sentence) {
    try {
        const BlockedSignals blocked;
        std::thread([text = std::string(sentence)] {
            pthread_setname_np(pthread_self(), "mf-notice");
            if (!Py_IsInitialized()) return;
            const AcquiredGil acquired;
            const nb::object arguments = nb::make_tuple(text);
            PyObject* const result = call_from_core(notice_function, arguments.ptr());
            result != nullptr ? Py_DECREF(result) : PyErr_WriteUnraisable(notice_function);
        }).detach();
    } catch (const std::system_error&) {
        std::fprintf(stderr, "memfabric_hybrid: %s\n", sentence);
    }
}

using Traffic = std::tuple<const char*, const char*, std::uint64_t, std::uint64_t, std::uint64_t>;

std::vector<Traffic> traffic() {
    std::vector<Traffic> all;
    for (std::size_t route = 0; route < kRoutes; ++route) {
        for (std::size_t operation = 0; operation < kOperations; ++operation) {
            for (std::size_t index = 0; index < kSizeClasses; ++index) {
                const auto by = static_cast<Route>(route);
                const auto what = static_cast<Operation>(operation);
                const TrafficCounters::Amount amount = rcu::traffic(by, what, index);
                if (amount.calls == 0) continue;
                all.emplace_back(name_of(by), name_of(what), smallest_of_class(index), amount.calls, amount.bytes);
            }
        }
    }
    return all;
}

}  // namespace

void bind_observation(nb::module_& module) {
    module.def(
        "_set_notice_handler",
        [](const nb::callable& handler) {
            notice_function = handler.inc_ref().ptr();
            set_notice_handler(pass_on);
        },
        nb::arg("handler"), "`handler(sentence)` runs for what the core has to say, on threads of its own.");
    module.def("_traffic", &traffic,
               "What this process has moved: (route, operation, smallest size of the class, calls, bytes) of each.");
}

}  // namespace memfabric::python
