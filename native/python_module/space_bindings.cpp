// SPDX-License-Identifier: Apache-2.0
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "base/last_error.h"
#include "copy/type.h"
#include "python_module/arguments/number.h"
#include "python_module/arguments/seconds.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/callback.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

std::chrono::nanoseconds stall_limit_of(double seconds) {
    return seconds > kLongestTimeoutS ? RoutedBatch::kNoLimit : nanoseconds_of(seconds);
}

void init(SpaceObject* self, U64 base, U32 capacity, U64 max_dram_bytes, U64 max_hbm_bytes, U32 local_rank,
          std::string object_name, double stall_limit_s) {
    new (self) SpaceObject({base, capacity, max_dram_bytes, max_hbm_bytes, local_rank, std::move(object_name),
                            stall_limit_of(stall_limit_s)});
}

Tier tier_of(U32 number) {
    if (number < kTiers) return static_cast<Tier>(std::uint32_t{number});
    raise(fail(Status::InvalidParam, "tier %u does not exist: 0 is DRAM, 1 is HBM", std::uint32_t{number}));
}

void attach(SpaceObject& self, U32 rank, U32 tier, int fd, U64 fd_offset, U64 slot_offset, U64 size, bool sealed) {
    const Tier known = tier_of(tier);
    raise_if_failed(
        without_gil([&] { return self.space->attach(rank, known, fd, fd_offset, slot_offset, size, sealed); }));
}

template <typename TransportObject>
void attach_remote(SpaceObject& self, U32 rank, U32 tier, U64 slot_offset, U64 size, const TransportObject& way) {
    const Tier known = tier_of(tier);
    raise_if_failed(
        without_gil([&] { return self.space->attach_remote(rank, known, slot_offset, size, way.transport); }));
}

nb::tuple serve(SpaceObject& self) {
    Connect connect{};
    raise_if_failed(self.space->serve(connect));
    return nb::make_tuple(nb::bytes(connect.target.data(), connect.target.size()),
                          nb::bytes(connect.secret.data(), connect.secret.size()));
}

nb::tuple serve_ucx(SpaceObject& self, const UcxContextObject& context) {
    ucx::RemoteMemory memory;
    raise_if_failed(without_gil([&] { return self.space->serve_ucx(context.options, memory); }));
    nb::list regions;
    for (const ucx::RemoteRegion& region : memory.regions) {
        regions.append(nb::make_tuple(region.base, region.size_bytes, nb::bytes(region.key.data(), region.key.size())));
    }
    return nb::make_tuple(nb::bytes(memory.worker_address.data(), memory.worker_address.size()), nb::tuple(regions));
}

void set_catch_up(SpaceObject& self, nb::object ask, bool also_gone) {
    self.space->set_catch_up(
        [callback = Callback(std::move(ask))](const std::vector<std::uint32_t>& ranks) {
            return callback.call([](const nb::object&) { return Status::Ok; }, ranks);
        },
        also_gone);
}

void copy(SpaceObject& self, U64 source, U64 target, U64 size) {
    raise_if_failed(without_gil([&] { return self.space->copy(source, target, size, kAutoCopy); }));
}

// Waits for running copies, which may belong to threads that want the GIL next.
void close(SpaceObject& self) {
    finish_without_gil([&] { self.space->close(); });
}

Bytes view(SpaceObject& self, U32 rank, U32 tier, U64 offset, U64 size) {
    std::shared_ptr<View> view;
    const Tier known = tier_of(tier);
    raise_if_failed(without_gil([&] { return self.space->view(rank, known, offset, size, view); }));
    std::byte* data = view->data();
    auto* pin = new std::shared_ptr<View>(std::move(view));
    const nb::capsule owner(pin, [](void* pointer) noexcept {
        const ReleasedGil released(ReleasedGil::kWait);  // the last one gives addresses back, after running copies
        delete static_cast<std::shared_ptr<View>*>(pointer);
    });
    return Bytes(data, {static_cast<std::size_t>(size)}, owner);
}

std::uint64_t slot_address(const SpaceObject& self, U32 rank, U32 tier) {
    raise_if_failed(self.space->slots().check_rank(rank));
    return self.space->layout().slot_address(rank, tier_of(tier));
}

std::uint64_t allocated(const SpaceObject& self, U32 rank, U32 tier) {
    raise_if_failed(self.space->slots().check_rank(rank));
    return self.space->slots().allocated_bytes(rank, tier_of(tier));
}

bool is_live(const SpaceObject& self, U32 rank) {
    raise_if_failed(self.space->slots().check_rank(rank));
    return self.space->slots().live(rank);
}

}  // namespace

SpaceObject::SpaceObject(const Space::Config& config) {
    raise_if_failed(without_gil([&] { return Space::make(config, space); }));
}

void bind_space(nb::module_& module) {
    nb::class_<SpaceObject> space(
        module, "Space",
        "One object's range of global addresses: DRAM slots of all ranks, then HBM slots of all ranks.\n\n"
        "The public methods are the copies that BigMemory inherits; the rest tells the space whose memory is where.");
    space
        .def("__init__", &init, nb::arg("base"), nb::arg("capacity"), nb::arg("max_dram_bytes"),
             nb::arg("max_hbm_bytes"), nb::arg("local_rank"), nb::arg("object_name"),
             nb::arg("stall_limit_s") = std::numeric_limits<double>::infinity(),
             "Reserve the range in this process. Raises FabricError: MallocFailed if a part of it is in use.\n"
             "`stall_limit_s`: copies from and to other hosts fail when no byte moves for so long.")
        .def(
            "_attach", &attach, nb::arg("rank"), nb::arg("tier"), nb::arg("fd"), nb::arg("fd_offset"),
            nb::arg("slot_offset"), nb::arg("size"), nb::arg("sealed") = false,
            "Map `size` bytes of the segment `fd` behind what the slot already holds (`slot_offset` must say how much\n"
            "that is). The descriptor may be closed afterwards. Does not make the rank live. `sealed`: refuse a file "
            "that can\n"
            "be cut.")
        .def("_attach_remote", &attach_remote<TcpTransportObject>, nb::arg("rank"), nb::arg("tier"),
             nb::arg("slot_offset"), nb::arg("size"), nb::arg("transport"),
             "The same for memory of another host, to which the transport leads; a slot has one transport.")
        .def("_attach_remote", &attach_remote<UcxTransportObject>, nb::arg("rank"), nb::arg("tier"),
             nb::arg("slot_offset"), nb::arg("size"), nb::arg("transport"))
        .def(
            "_activate", [](SpaceObject& self, U32 rank) { raise_if_failed(self.space->activate(rank)); },
            nb::arg("rank"), "The rank is there: copies may use its memory.")
        .def(
            "_revoke",
            [](SpaceObject& self, U32 rank, const std::string& reason) {
                raise_if_failed(self.space->revoke(rank, reason));
            },
            nb::arg("rank"), nb::arg("reason"),
            "The rank is gone: copies that touch it fail with -2014 and this reason from now on. Does not wait.")
        .def(
            "_detach", [](SpaceObject& self, U32 rank) { raise_if_failed(self.space->detach(rank)); }, nb::arg("rank"),
            "Revoke if that has not happened, and take the rank's memory away as soon as running copies have let go "
            "of it:\n"
            "see _collect(). Memory that arrays show stays until the last of them is gone, or the rank is attached "
            "anew.")
        .def(
            "_collect", [](SpaceObject& self) { return self.space->collect(); },
            "Take away what was detached and nobody uses any more; True if nothing is left to be taken away.")
        .def(
            "_drain", [](SpaceObject& self, U32 rank) { finish_without_gil([&] { self.space->drain(rank); }); },
            nb::arg("rank"), "Wait until running copies have let go of what was detached of that rank.")
        .def(
            "_is_drained", [](SpaceObject& self, U32 rank) { return self.space->is_drained(rank); }, nb::arg("rank"),
            "Whether they have. Does not wait.")
        .def("_serve", &serve,
             "(id, secret): who says both to this process's DataListener may touch this rank's memory between "
             "_expose()\n"
             "and _conceal() or _shut(). The same answer every time.")
        .def("_serve_ucx", &serve_ucx, nb::arg("context"),
             "(worker address, (base, size, key)...): who has these may touch this rank's memory by UCX, all that it\n"
             "has now, until _conceal(). Again when it has grown. No worker address if it has none.")
        .def(
            "_expose", [](SpaceObject& self) { self.space->expose(); },
            "Let members of other hosts into this rank's memory: it is about to join.")
        .def(
            "_conceal", [](SpaceObject& self) { finish_without_gil([&] { self.space->conceal(); }); },
            "Undo it, and wait until no member of another host touches this rank's memory any more.")
        .def("_set_catch_up", &set_catch_up, nb::arg("ask"), nb::arg("also_gone"),
             "`ask()` is called by a copy that fails because of a rank that may have joined or grown by now. When it\n"
             "returns, the space knows all that is known, and the copy looks again. FabricError: nobody can say.")
        .def(
            "_open", [](SpaceObject& self) { raise_if_failed(self.space->open()); },
            "This rank has joined: copies may run.")
        .def(
            "_shut",
            [](SpaceObject& self, int code, const std::string& sentence) {
                raise_if_failed(self.space->shut(static_cast<Status>(code), sentence));
            },
            nb::arg("code"), nb::arg("sentence"), "This rank has left or was evicted: copies fail with this.")
        .def("_copy", &copy, nb::arg("source"), nb::arg("target"), nb::arg("size"),
             "copy_data() of the type AUTO, raising.")
        .def("_close", &close,
             "End the object: queued copies fail, running ones are waited for, memory without arrays is unmapped. "
             "Later\n"
             "calls fail with -2000. Idempotent.")
        .def("_view", &view, nb::arg("rank"), nb::arg("tier"), nb::arg("offset"), nb::arg("size"),
             nb::rv_policy::reference,
             "A numpy array of bytes on the memory itself, which stays mapped as long as the array lives.")
        .def("_slot_address", &slot_address, nb::arg("rank"), nb::arg("tier"), "Where the rank's slot starts.")
        .def("_allocated", &allocated, nb::arg("rank"), nb::arg("tier"), "How many bytes of the slot hold memory.")
        .def("_is_live", &is_live, nb::arg("rank"), "Whether the rank is there.")
        .def(
            "_addressable", [](const SpaceObject& self, U64 gva) { return self.space->slots().addressable(gva); },
            nb::arg("gva"), "Whether this process can load and store there: memory of a rank that is there.")
        .def_prop_ro(
            "_is_open", [](const SpaceObject& self) { return self.space->is_open(); }, "Whether copies may run.")
        .def_prop_ro(
            "base", [](const SpaceObject& self) { return self.space->layout().base(); }, "First address.")
        .def_prop_ro(
            "capacity", [](const SpaceObject& self) { return self.space->layout().capacity(); },
            "Ranks it has slots for.")
        .def_prop_ro(
            "max_dram_bytes", [](const SpaceObject& self) { return self.space->layout().max_bytes(Tier::Dram); },
            "Size of a rank's DRAM slot.")
        .def_prop_ro(
            "max_hbm_bytes", [](const SpaceObject& self) { return self.space->layout().max_bytes(Tier::Hbm); },
            "Size of a rank's HBM slot.")
        .def_prop_ro(
            "local_rank", [](const SpaceObject& self) { return self.space->local_rank(); }, "This process's rank.")
        .def_prop_ro(
            "object_name", [](const SpaceObject& self) { return self.space->object_name(); },
            "What sentences call the object.");
    bind_copies(space);
}

}  // namespace memfabric::python
