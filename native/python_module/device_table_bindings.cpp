// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <vector>

#include "base/last_error.h"
#include "collectives/device_table.h"
#include "python_module/arguments/number.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/raise.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

void enter(U32 id, U32 rank, U32 rank_size, U64 gva, U64 symmetric_size, U64 departures, U64 declared,
           const std::vector<std::uint32_t>& far_ranks) {
    if (id >= kDeviceObjects) {
        raise(fail(Status::InvalidParam, "shm object id %u, expected 0 to %u", std::uint32_t{id}, kDeviceObjects - 1));
    }
    if (std::ranges::any_of(far_ranks, [](std::uint32_t far) { return far >= kMaxRanks; })) {
        raise(fail(Status::InvalidParam, "a rank of shm object %u is beyond %u", std::uint32_t{id}, kMaxRanks - 1));
    }
    raise_if_failed(DeviceTable::open());
    DeviceTable::enter(id,
                       {.present = 1,
                        .rank = rank,
                        .rank_size = rank_size,
                        .context_bytes = 0,
                        .gva = gva,
                        .symmetric_bytes = symmetric_size,
                        .context_address = 0,
                        .departures_address = departures,
                        .declared_address = declared,
                        .reserved = 0},
                       far_ranks);
}

void set_context(U32 id, const nb::bytes& context) {
    if (context.size() > kMaxContextBytes) {
        raise(fail(Status::InvalidParam, "a context of %zu bytes, expected 1 to %u", context.size(), kMaxContextBytes));
    }
    raise_if_failed(DeviceTable::set_context(id, context.c_str(), static_cast<std::uint32_t>(context.size())));
}

}  // namespace

void bind_device_table(nb::module_& module) {
    module.attr("DEVICE_TABLE_ADDRESS") = kDeviceTableAddress;
    module.attr("DEVICE_ROUTES_ADDRESS") = kDeviceRoutesAddress;
    module.def(
        "device_table_open", [] { raise_if_failed(DeviceTable::open()); },
        "Make the table readable for kernels, also while there is no object. Raises FabricError.");
    module.def("device_table_enter", &enter, nb::arg("id"), nb::arg("rank"), nb::arg("rank_size"), nb::arg("gva"),
               nb::arg("symmetric_size"), nb::arg("departures"), nb::arg("declared"), nb::arg("far_ranks"),
               "Show an object to the kernels of this process. Raises FabricError.");
    module.def("device_table_set_context", &set_context, nb::arg("id"), nb::arg("context"),
               "Copy the context to where kernels read it. Raises FabricError.");
    module.def("device_table_remove", [](U32 id) { DeviceTable::remove(id); }, nb::arg("id"));
    module.def("device_table_remove_all", [] { DeviceTable::remove_all(); }, "In a forked child.");
}

}  // namespace memfabric::python
