// SPDX-License-Identifier: Apache-2.0
//
// UCX: which library, what this process has of it, and the way to memory that another process serves by it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"
#include "ucx/library.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

using PathAndVersion = std::pair<std::string, std::string>;
using Regions = std::vector<std::tuple<std::uint64_t, std::uint64_t, nb::bytes>>;

std::optional<PathAndVersion> loaded_ucx() {
    const ucx::Library* library = ucx::Library::loaded();
    if (library == nullptr) return std::nullopt;
    return PathAndVersion{library->path(), library->version()};
}

PathAndVersion load_ucx(const std::string& chosen, const std::string& wheel) {
    raise_if_failed(without_gil([&] { return ucx::Library::load({chosen, wheel}); }));
    return *loaded_ucx();
}

void init_context(UcxContextObject* self, std::string transports, std::string devices) {
    const ucx::Options options{std::move(transports), std::move(devices)};
    std::shared_ptr<ucx::Runtime> runtime;
    raise_if_failed(without_gil([&] { return ucx::Runtime::acquire(options, runtime); }));
    new (self) UcxContextObject{options, std::move(runtime)};
}

std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

std::vector<ucx::RemoteRegion> regions_of(const Regions& given) {
    std::vector<ucx::RemoteRegion> regions;
    for (const auto& [base, size_bytes, key] : given) regions.push_back({base, size_bytes, text_of(key)});
    return regions;
}

void init_transport(UcxTransportObject* self, const UcxContextObject& context, const nb::bytes& worker_address,
                    std::string version, const Regions& regions) {
    ucx::RemoteMemory memory{text_of(worker_address), std::move(version), regions_of(regions)};
    std::unique_ptr<ucx::UcxTransport> opened;
    raise_if_failed(without_gil([&] { return ucx::UcxTransport::open(std::move(memory), context.options, opened); }));
    new (self) UcxTransportObject{std::move(opened)};
}

void grow(UcxTransportObject& self, const Regions& regions) {
    ucx::RemoteMemory memory = *self.transport->memory();
    memory.regions = regions_of(regions);
    self.transport->grow(std::move(memory));
}

}  // namespace

void bind_ucx(nb::module_& module) {
    module.def("_load_ucx", &load_ucx, nb::arg("chosen"), nb::arg("wheel"),
               "Load UCX, once for the process, and return (path, version): the file `chosen`, or one that is loaded\n"
               "already, the system's, or the file `wheel`; \"\" = none. Raises FabricError.");
    module.def("_ucx", &loaded_ucx, "(path, version) of the UCX that was loaded, or None.");
    nb::class_<UcxContextObject>(module, "UcxContext", "UCX over chosen devices; a process has one choice at a time.")
        .def("__init__", &init_context, nb::arg("transports"), nb::arg("devices"),
             "As in UCX_TLS and UCX_NET_DEVICES; UCX is loaded already. Raises FabricError.");
    nb::class_<UcxTransportObject>(module, "UcxTransport",
                                   "The way to memory that another process serves by UCX. Connects when it is used.")
        .def("__init__", &init_transport, nb::arg("context"), nb::arg("worker_address"), nb::arg("version"),
             nb::arg("regions"), "What Space._serve_ucx() returned there, and the version of UCX there.")
        .def("grow", &grow, nb::arg("regions"), "All that is served there by now.")
        .def_prop_ro(
            "endpoints", [](const UcxTransportObject& self) { return self.transport->endpoints(); },
            "How many connections there are now.");
}

}  // namespace memfabric::python
