// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include <stdexcept>

#include "python_module/bindings.h"

NB_MODULE(_native, module) {
    using namespace memfabric::python;
    // Region table, engines and threads are the process's, and so is whoever may call back: there is one of each.
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        throw std::runtime_error(  // nanobind makes an ImportError of it
            "memfabric_hybrid works in the main interpreter of a process only, not in a sub-interpreter; use a process "
            "or a thread instead");
    }
    module.doc() =
        "The data plane: address spaces, copies, transfers, streams and heartbeats, without the GIL where it "
        "matters.\n\n"
        "Names with an underscore belong to the control plane of this package and raise FabricError on failure;\n"
        "all others follow the documented interface: codes, and a sentence in last_error().";
    // Objects that a program keeps until it exits are its right; nanobind would complain about them on stderr.
    nanobind::set_leak_warnings(false);
    bind_last_error(module);
    bind_failure_report(module);
    bind_limits(module);
    bind_process(module);
    bind_pause_point(module);
    bind_observation(module);
    bind_notifier(module);
    bind_stream(module);
    bind_heartbeat(module);
    bind_endpoint(module);
    bind_tls(module);
    bind_tcp(module);
    bind_space(module);
    bind_transfer(module);
    bind_host_group(module);
    bind_device_table(module);
    bind_ucx(module);
    bind_bridge(module);
}
