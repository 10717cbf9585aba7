// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <new>
#include <string>
#include <string_view>

#include "endpoint/heartbeat.h"
#include "python_module/arguments/number.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

void init(HeartbeatObject* self, int fd, const nb::bytes& payload, U32 interval_ms, U32 beat_bytes) {
    std::unique_ptr<Heartbeat> heartbeat;
    raise_if_failed(Heartbeat::start(fd, std::string(payload.c_str(), payload.size()),
                                     std::chrono::milliseconds(std::uint32_t{interval_ms}), heartbeat,
                                     std::uint32_t{beat_bytes}));
    new (self) HeartbeatObject{std::move(heartbeat)};
}

void add(HeartbeatObject& self, const nb::bytes& beats) {
    raise_if_failed(self.heartbeat->add(std::string_view(beats.c_str(), beats.size())));
}

void stop(HeartbeatObject& self) {
    finish_without_gil([&] { self.heartbeat->stop(); });
}

}  // namespace

void bind_heartbeat(nb::module_& module) {
    nb::class_<HeartbeatObject>(
        module, "Heartbeat",
        "Sends `payload` on a duplicate of socket `fd` every `interval_ms`, first after one interval, from a native\n"
        "thread that never needs the GIL. Nobody else may write to that socket. Ends when sending fails. With\n"
        "`beat_bytes` the payload is a supply of beats of that size, each sent once.")
        .def("__init__", &init, nb::arg("fd"), nb::arg("payload"), nb::arg("interval_ms"),
             nb::arg("beat_bytes") = U32{0}, "Raises FabricError.")
        .def("add", &add, nb::arg("beats"), "More beats for the supply. Raises FabricError.")
        .def_prop_ro(
            "beats_left", [](const HeartbeatObject& self) { return self.heartbeat->beats_left(); },
            "Beats of the supply that are not sent yet.")
        .def("stop", &stop, "End the thread, at once even if the peer does not read. Idempotent.")
        .def_prop_ro(
            "beating", [](const HeartbeatObject& self) { return self.heartbeat->beating(); },
            "False after stop() and once sending has failed.");
}

}  // namespace memfabric::python
