// SPDX-License-Identifier: Apache-2.0
//
// The parts of the module. Each binds one noun of the core; they convert arguments and results and decide nothing.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "bridge/call.h"
#include "endpoint/heartbeat.h"
#include "python_module/interpreter/gil.h"
#include "space/space.h"
#include "space/stream.h"
#include "tcp/listener.h"
#include "tcp/transport.h"
#include "tls/identity.h"
#include "transfer/engine.h"
#include "transfer/ticket.h"
#include "ucx/runtime.h"
#include "ucx/transport.h"

namespace memfabric::python {

// The Python objects. Each owns its core object and ends it when Python drops it.
struct SpaceObject {
    std::shared_ptr<Space> space;

    explicit SpaceObject(const Space::Config& config);
    ~SpaceObject() {
        const ReleasedGil released(ReleasedGil::kWait);  // it waits for running copies
        if (space != nullptr) space->close();
        space.reset();
    }
};

struct StreamObject {
    std::shared_ptr<Stream> stream = Stream::make();

    ~StreamObject() {
        const ReleasedGil released(ReleasedGil::kWait);  // it waits for queued copies
        stream.reset();
    }
};

struct HeartbeatObject {
    std::unique_ptr<Heartbeat> heartbeat;
};

// The way to memory of another host; spaces that use it keep it.
struct TcpTransportObject {
    std::shared_ptr<tcp::TcpTransport> transport;
};

// Who this process is on connections between hosts; those who use it keep it.
struct TlsIdentityObject {
    std::shared_ptr<tls::Identity> identity;
};

inline std::shared_ptr<const tls::Identity> shared(const TlsIdentityObject* object) {  // nullptr: None
    return object == nullptr ? nullptr : object->identity;
}

// What this process has of UCX, kept for those who use it one after the other.
struct UcxContextObject {
    ucx::Options options;
    std::shared_ptr<ucx::Runtime> runtime;

    ~UcxContextObject() {
        const ReleasedGil released(ReleasedGil::kWait);  // the last one joins UCX's thread
        runtime.reset();
    }
};

struct UcxTransportObject {
    std::shared_ptr<ucx::UcxTransport> transport;
};

struct DataListenerObject {
    std::unique_ptr<tcp::Listener> listener;  // nullptr once it is closed
    std::string address;

    ~DataListenerObject() {
        const ReleasedGil released(ReleasedGil::kWait);  // it joins its thread
        listener.reset();
    }
};

struct TransferObject {
    std::shared_ptr<TransferEngine> engine = std::make_shared<TransferEngine>();

    ~TransferObject() {
        const ReleasedGil released(ReleasedGil::kWait);  // it waits for peers, and threads of ours may want the GIL
        engine.reset();
    }
};

struct TicketObject {
    std::shared_ptr<Ticket> ticket;
};

// The native half of a ShareMemory; nullptr if it is none, or has left.
std::shared_ptr<bridge::Heap> heap_of(nanobind::handle object);

void bind_last_error(nanobind::module_& module);
void bind_failure_report(nanobind::module_& module);
void bind_limits(nanobind::module_& module);
void bind_process(nanobind::module_& module);
void bind_pause_point(nanobind::module_& module);
void bind_observation(nanobind::module_& module);
void bind_notifier(nanobind::module_& module);
void bind_stream(nanobind::module_& module);
void bind_heartbeat(nanobind::module_& module);
void bind_endpoint(nanobind::module_& module);
void bind_tls(nanobind::module_& module);
void bind_tcp(nanobind::module_& module);
void bind_space(nanobind::module_& module);
void bind_host_group(nanobind::module_& module);
void bind_device_table(nanobind::module_& module);
void bind_ucx(nanobind::module_& module);
void bind_bridge(nanobind::module_& module);
void bind_copies(nanobind::class_<SpaceObject>& space);
void bind_transfer(nanobind::module_& module);
void bind_notifications(nanobind::module_& module, nanobind::class_<TransferObject>& transfer);
void bind_tickets(nanobind::module_& module, nanobind::class_<TransferObject>& transfer);
void bind_transfer_moves(nanobind::module_& module, nanobind::class_<TransferObject>& transfer);

}  // namespace memfabric::python
