// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/pair.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "base/fork_guard.h"
#include "copy/engine.h"
#include "endpoint/keep_alive.h"
#include "memory/segment.h"
#include "python_module/arguments/number.h"
#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"
#include "space/stream.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

std::pair<int, std::uint64_t> make_segment(U64 size, bool want_huge, int numa_node, bool numa_strict) {
    Segment segment;
    raise_if_failed(create_segment({size, want_huge, numa_node, numa_strict}, segment));
    return {segment.fd, segment.page_bytes};
}

void shut_down() {
    raise_if_failed(without_gil([] {
        const Status status = Stream::close_all();
        if (status == Status::Ok) CopyEngine::process().shut_down();
        return status;
    }));
}

}  // namespace

void bind_process(nb::module_& module) {
    module.attr("DRAM") = static_cast<int>(Tier::Dram);
    module.attr("HBM") = static_cast<int>(Tier::Hbm);
    module.def("fork_count", &ForkGuard::forks,
               "Changes in a forked child, whoever forked: Python's hooks see only its own forks.");
    module.def(
        "set_copy_threads", [](U32 threads) { CopyEngine::process().set_thread_limit(threads); }, nb::arg("threads"),
        "How many threads may share one large copy; 0 = as many as cores, at most 4.");
    module.def(
        "set_host_timeout",
        [](double seconds) { set_host_timeout(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000))); },
        nb::arg("seconds"), "How long a TCP connection lives without a sign of life from the other host.");
    module.def(
        "shut_down", &shut_down,
        "End every thread of the data plane: streams finish what was submitted and are closed; later copies run\n"
        "on the calling thread. For the end of the process.");
    module.def(
        "create_segment", &make_segment, nb::arg("size"), nb::arg("want_huge") = true, nb::arg("numa_node") = -1,
        nb::arg("numa_strict") = false,
        "Create shareable memory of `size` bytes (a multiple of 2 MiB) and return (fd, page size). The caller owns\n"
        "the descriptor; the segment's size is sealed. Huge pages are used if wanted and free, else ordinary ones.\n"
        "`numa_node` -1 = anywhere; `numa_strict` raises rather than placing memory on another node.\n"
        "Raises FabricError.");
}

}  // namespace memfabric::python
