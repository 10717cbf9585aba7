// SPDX-License-Identifier: Apache-2.0
//
// The life of a transfer engine and its memory; the transfers are in transfer_move_bindings.cpp.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/last_error.h"
#include "python_module/arguments/fast_method.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/number_list.h"
#include "python_module/arguments/session_name.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/callback.h"
#include "python_module/interpreter/failure_report.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

void open(const TransferObject& self, const std::string& session, U32 timeout_ms, const std::string& host,
          const RoutesAllowed& allowed, const DataPlace& data_place, const UcxUse& ucx,
          const TlsIdentityObject* identity) {
    raise_if_failed(without_gil([&] {
        return self.engine->open(session, std::chrono::milliseconds(timeout_ms.value), host, allowed, data_place, ucx,
                                 shared(identity));
    }));
}

// `choose(version, transports, devices, obstacle, same_host)` answers with (by UCX, why), or raises; it runs on the
// thread that transfers.
UcxUse ucx_use(const UcxContextObject* context, std::string version, std::string transports, std::string devices,
               std::string obstacle, nb::object choose) {
    UcxUse use;
    if (context != nullptr) use.options = context->options;
    use.offer = {std::move(version), std::move(transports), std::move(devices), std::move(obstacle)};
    use.choose = [callback = Callback(std::move(choose))](const UcxOffer& peer, bool same_host, NetworkRoute& chosen) {
        return callback.call(
            [&](const nb::object& answer) {
                std::tie(chosen.by_ucx, chosen.reason) = nb::cast<std::pair<bool, std::string>>(answer);
                return Status::Ok;
            },
            peer.version, peer.transports, peer.devices, peer.obstacle, same_host);
    };
    return use;
}

nb::tuple route(const TransferObject& self, const std::string& session) {
    Route route{};
    std::string reason;
    raise_if_failed(without_gil([&] { return self.engine->route(session, route, reason); }));
    return nb::make_tuple(name_of(route), reason);
}

void close(const TransferObject& self) {
    finish_without_gil([&] { self.engine->close(); });
}

std::uint32_t port(const TransferObject& self) {
    std::uint16_t port = 0;
    return code_of("TransferEngine.get_rpc_port", self.engine->port(port)) == 0 ? port : 0U;
}

// Whoever waits keeps this object: a list fetched for each wait would one day be that of the engine's next life.
struct PeerFailuresObject {
    std::shared_ptr<PeerFailures> failures;
};

PeerFailuresObject failures(const TransferObject& self) {
    const std::shared_ptr<PeerFailures> failures = self.engine->failures();
    failures->listen();
    return {failures};
}

nb::object wait_for_failure(const PeerFailuresObject& self) {
    std::string session;
    bool is_one = false;
    {
        const ReleasedGil released;
        is_one = self.failures->wait(session);
    }
    return is_one ? session_text(session) : nb::none();
}

// `find(session)` answers with an address, or raises; it runs on the thread that transfers.
void set_directory(const TransferObject& self, nb::object find) {
    if (find.is_none()) return self.engine->set_directory(nullptr);
    self.engine->set_directory(
        [callback = Callback(std::move(find))](const std::string& session, std::string& address) {
            return callback.call(
                [&](const nb::object& answer) {
                    address = nb::cast<std::string>(answer);
                    return Status::Ok;
                },
                session);
        });
}

int register_memory(const TransferObject& self, U64 address, U64 size) {
    return code_of("TransferEngine.register_memory",
                   without_gil([&] { return self.engine->register_memory({&address.value, 1}, {&size.value, 1}); }));
}

void raising_register(const TransferObject& self, U64 address, U64 size) {
    raise_if_failed(without_gil([&] { return self.engine->register_memory({&address.value, 1}, {&size.value, 1}); }));
}

void raising_unregister(const TransferObject& self, U64 address) {
    raise_if_failed(without_gil([&] { return self.engine->unregister_memory({&address.value, 1}); }));
}

int batch_register(const TransferObject& self, const NumberList& addresses, const NumberList& sizes) {
    return code_of("TransferEngine.batch_register_memory",
                   without_gil([&] { return self.engine->register_memory(addresses.numbers(), sizes.numbers()); }));
}

int unregister_memory(const TransferObject& self, U64 address) {
    return code_of("TransferEngine.unregister_memory",
                   without_gil([&] { return self.engine->unregister_memory({&address.value, 1}); }));
}

int batch_unregister(const TransferObject& self, const NumberList& addresses) {
    return code_of("TransferEngine.batch_unregister_memory",
                   without_gil([&] { return self.engine->unregister_memory(addresses.numbers()); }));
}

std::uint64_t trans_malloc(const TransferObject& self, U64 size) {
    std::uint64_t address = 0;
    return code_of("TransferEngine.trans_malloc", without_gil([&] { return self.engine->allocate(size, address); })) ==
                   0
               ? address
               : 0;
}

void set_memory_limit(const TransferObject& self, U64 most_bytes, std::string holder) {
    self.engine->set_memory_limit({most_bytes, std::move(holder)});
}

int trans_free(const TransferObject& self, U64 address) {
    return code_of("TransferEngine.trans_free", without_gil([&] { return self.engine->release(address); }));
}

constexpr const char* kRegisterDoc =
    "Let peers read and write `capacity` bytes at `buffer_addr`: any start, any size, overlaps allowed; before\n"
    "initialize() too. Connected peers can use it when this returns.\n\n"
    "Returns 0; -2000 for what is not readable memory of this process; -2002 beyond 1048576 registrations; -2008 in a\n"
    "forked child.";
constexpr const char* kUnregisterDoc =
    "End every registration that starts at the address, for connected peers too. When it returns 0 no peer is inside\n"
    "the memory any more: it may be freed.\n\n"
    "Returns 0; -2007 if none starts there; -2004 if a peer that was inside does not go on within the time-out (the\n"
    "registration has ended all the same).";
constexpr const char* kMallocDoc =
    "Memory that peers of this host map and copy into directly: the fastest kind. It is registered from the start,\n"
    "zeroed, aligned to 4 KiB (2 MiB from that size on), and lives until trans_free() or the end of the engine.\n\n"
    "Returns the address; 0 on failure (see the last error).";
constexpr const char* kFreeDoc =
    "End the registrations that touch memory of trans_malloc(), wait for peers that are inside, and free it.\n\n"
    "Returns 0; -2007 for an address that trans_malloc() did not return; -2004 as unregister_memory().";
constexpr const char* kPortDoc =
    "Before initialize(): a free port, reserved by this engine and the same at every call. After: the port the engine\n"
    "listens on. 0 on failure (see the last error).";

}  // namespace

void bind_transfer(nb::module_& module) {
    nb::class_<PeerFailuresObject>(module, "PeerFailures", "Peers that went away in one life of an engine.")
        .def("wait", &wait_for_failure, "The session of the next one; None when the engine closed and all are told.");
    nb::class_<RoutesAllowed>(module, "RoutesAllowed", "Which ways an engine may go.")
        .def(nb::init<bool, bool, bool>(), nb::arg("host"), nb::arg("tcp"), nb::arg("rdma"));
    nb::class_<DataPlace>(
        module, "DataPlace",
        "Where peers of other hosts connect for data: the first port that is free; without a host at\n"
        "the session's address.")
        .def(nb::init<std::string, std::uint16_t, std::uint16_t>(), nb::arg("host") = "", nb::arg("first_port") = 0,
             nb::arg("last_port") = 0);
    nb::class_<UcxUse>(module, "UcxUse", "What this process offers of UCX to peers, and who decides where it leads.")
        .def(nb::new_(&ucx_use), nb::arg("context").none(), nb::arg("version"), nb::arg("transports"),
             nb::arg("devices"), nb::arg("obstacle"), nb::arg("choose"),
             "`choose(version, transports, devices, obstacle, same_host)`, of a peer's UCX, returns whether UCX leads\n"
             "there (otherwise TCP does) and why, or raises FabricError.");
    nb::class_<TransferObject> transfer(module, "TransferCore",
                                        "One-sided transfers between processes: the hot half of TransferEngine.");
    transfer.def(nb::init<>())
        .def("_open", &open, nb::arg("session"), nb::arg("timeout_ms"), nb::arg("host"), nb::arg("allowed"),
             nb::arg("data_place"), nb::arg("ucx"), nb::arg("identity").none(),
             "Listen at the session's address and serve peers. Raises FabricError.")
        .def("_route", &route, nb::arg("session"),
             "Which way transfers of private memory go there, and why. Raises FabricError.")
        .def("_close", &close, "End everything: peers, registrations, memory of trans_malloc. Idempotent.")
        .def(
            "_abandon", [](const TransferObject& self) { self.engine->abandon_in_child(); },
            "In a forked child: let go of the parent's sockets.")
        .def_prop_ro(
            "_is_open", [](const TransferObject& self) { return self.engine->is_open(); }, "Between open and close.")
        .def_prop_ro(
            "_session", [](const TransferObject& self) { return self.engine->session(); },
            "The address at which peers reach this engine; \"\" when it is not initialised.")
        .def_prop_ro(
            "_registration_count", [](const TransferObject& self) { return self.engine->registration_count(); },
            "Registrations, merged by start address.")
        .def("_peer_failures", &failures, "The peers that go away from now on, until this life of the engine ends.")
        .def("_set_directory", &set_directory, nb::arg("find").none(),
             "`find(session)` returns the address of a session whose name is none, or raises FabricError.")
        .def("_set_memory_limit", &set_memory_limit, nb::arg("most_bytes"), nb::arg("holder"),
             "More than this `trans_malloc` does not give; `holder` says so.")
        .def("_register", &raising_register, nb::arg("address"), nb::arg("size"), "register_memory(), raising.")
        .def("_unregister", &raising_unregister, nb::arg("address"), "unregister_memory(), raising.");
    def_fast<&port, 0>(transfer, {"get_rpc_port", {}, 0, kPortDoc});
    def_fast<&register_memory, 2>(transfer, {"register_memory", {"buffer_addr", "capacity"}, 2, kRegisterDoc});
    def_fast<&batch_register, 2>(
        transfer,
        {"batch_register_memory",
         {"addrs", "capacities"},
         2,
         "register_memory() for many ranges at once: all or none. -2000 also when the lists differ in length."});
    def_fast<&unregister_memory, 1>(transfer, {"unregister_memory", {"addr"}, 1, kUnregisterDoc});
    def_fast<&batch_unregister, 1>(transfer, {"batch_unregister_memory",
                                              {"addrs"},
                                              1,
                                              "unregister_memory() for many addresses at once: all or, with -2007, "
                                              "none."});
    def_fast<&trans_malloc, 1>(transfer, {"trans_malloc", {"capacity"}, 1, kMallocDoc});
    def_fast<&trans_free, 1>(transfer, {"trans_free", {"addr"}, 1, kFreeDoc});
    bind_notifications(module, transfer);
    bind_transfer_moves(module, transfer);
}

}  // namespace memfabric::python
