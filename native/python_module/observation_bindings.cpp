// SPDX-License-Identifier: Apache-2.0
//
// What the core tells about itself: notices for the log, and how much went which way.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "base/blocked_signals.h"
#include "base/notice.h"
#include "base/pause_point.h"
#include "base/traffic.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "sync/event_count.h"
#include "sync/rcu.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

PyObject* notice_function = nullptr;  // kept for ever: a notice may come at any time

// Notices that have not reached the log yet.
std::atomic<std::uint32_t> under_way{0};
EventCount arrived;

void hand_over(const std::string& sentence) {
    PausePoint::reach("notice.hand_over");
    if (!Py_IsInitialized()) return;
    const AcquiredGil acquired;
    const nb::object arguments = nb::make_tuple(sentence);
    PyObject* const result = call_from_core(notice_function, arguments.ptr());
    result != nullptr ? Py_DECREF(result) : PyErr_WriteUnraisable(notice_function);
}

void count_arrival() {
    under_way.fetch_sub(1);
    arrived.notify_all();
}

// On a thread of its own: whoever has something to say cannot wait for the interpreter. Notices are rare.
void pass_on(const char* sentence) {
    under_way.fetch_add(1);
    try {
        const BlockedSignals blocked;
        std::thread([text = std::string(sentence)] {
            pthread_setname_np(pthread_self(), "mf-notice");
            hand_over(text);
            count_arrival();
        }).detach();
    } catch (const std::system_error&) {
        count_arrival();
        std::fprintf(stderr, "memfabric_hybrid: %s\n", sentence);
    }
}

// The program ends: what was said before reaches the log, unless somebody's logger takes longer than this.
void await_notices(double timeout_s) {
    const ReleasedGil released(ReleasedGil::kWait);
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
    const auto is_done = [] { return under_way.load() == 0; };
    for (auto left = until - std::chrono::steady_clock::now(); !is_done() && left.count() > 0;
         left = until - std::chrono::steady_clock::now()) {
        arrived.wait_unless(is_done, std::chrono::duration_cast<std::chrono::nanoseconds>(left));
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
    module.def("_await_notices", &await_notices, nb::arg("timeout_s"),
               "Returns when all that the core has said is in the log, or after that time.");
    module.def("_forget_notices", [] { under_way.store(0); }, "In a forked child: those under way are the parent's.");
    module.def("_traffic", &traffic,
               "What this process has moved: (route, operation, smallest size of the class, calls, bytes) of each.");
}

}  // namespace memfabric::python
