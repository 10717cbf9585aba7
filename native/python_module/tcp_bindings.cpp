// SPDX-License-Identifier: Apache-2.0
//
// The two ends of data connections between hosts: where this process lets peers in, and the way to a peer's memory.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/last_error.h"
#include "python_module/arguments/number.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

void fill(const char* name, const nb::bytes& given, std::span<std::uint8_t> wanted) {
    if (given.size() != wanted.size()) {
        raise(fail(Status::InvalidParam, "the %s of served memory has %zu bytes, expected %zu", name, given.size(),
                   wanted.size()));
    }
    std::copy_n(static_cast<const std::uint8_t*>(given.data()), wanted.size(), wanted.begin());
}

void init_transport(TcpTransportObject* self, const std::string& address, const nb::bytes& memory_id,
                    const nb::bytes& secret, const TlsIdentityObject* identity) {
    SessionAddress place;
    raise_if_failed(SessionAddress::parse(address, place));
    Connect connect{};
    fill("id", memory_id, connect.target);
    fill("secret", secret, connect.secret);
    tcp::Target target;
    raise_if_failed(tcp::Target::make(place, connect, shared(identity), target));
    new (self) TcpTransportObject{std::make_shared<tcp::TcpTransport>(std::move(target))};
}

void init_listener(DataListenerObject* self, const std::string& host, U32 first_port, U32 last_port,
                   const TlsIdentityObject* identity) {
    constexpr std::uint32_t kLastPort = 65535;
    if (first_port > kLastPort || last_port > kLastPort) {
        raise(fail(Status::InvalidParam, "ports %u to %u: ports are 0 to %u", std::uint32_t{first_port},
                   std::uint32_t{last_port}, kLastPort));
    }
    std::unique_ptr<tcp::Listener> opened;
    const SessionAddress address{host, static_cast<std::uint16_t>(std::uint32_t{first_port})};
    const auto last = static_cast<std::uint16_t>(std::uint32_t{last_port});
    raise_if_failed(without_gil([&] { return tcp::Listener::open(address, last, shared(identity), opened); }));
    std::string text = opened->address().text();
    new (self) DataListenerObject{std::move(opened), std::move(text)};
}

}  // namespace

void bind_tcp(nb::module_& module) {
    nb::class_<TcpTransportObject>(module, "TcpTransport",
                                   "The way to memory that a process of another host serves. Connects when it is used.")
        .def(
            "__init__", &init_transport, nb::arg("address"), nb::arg("memory_id"), nb::arg("secret"),
            nb::arg("identity").none(),
            "`address` is numeric, with a port; `memory_id` and `secret` are what Space._serve() returned there. With\n"
            "an identity its connections are encrypted.")
        .def_prop_ro(
            "connections", [](const TcpTransportObject& self) { return self.transport->connections(); },
            "How many there are now.");
    nb::class_<DataListenerObject>(module, "DataListener",
                                   "Where peers of other hosts connect for data. A native thread lets them in.")
        .def("__init__", &init_listener, nb::arg("host"), nb::arg("first_port"), nb::arg("last_port"),
             nb::arg("identity").none(),
             "Listens at the first port of the range that is free; port 0 is any. With an identity it lets encrypted\n"
             "connections in only. Raises FabricError.")
        .def_ro("address", &DataListenerObject::address, "With its port; also after it was closed.")
        .def(
            "close",
            [](DataListenerObject& self) {
                std::unique_ptr<tcp::Listener> ended = std::move(self.listener);  // by one thread, under the GIL
                finish_without_gil([&] { ended.reset(); });
            },
            "Lets nobody in any more; connections that are there stay. Idempotent.");
}

}  // namespace memfabric::python
