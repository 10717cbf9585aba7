// SPDX-License-Identifier: Apache-2.0
//
// Numbers that the control plane keeps as well: it takes them from here.
#include <nanobind/nanobind.h>

#include "base/limits.h"
#include "base/owned_fd.h"
#include "collectives/control_page.h"
#include "collectives/device_table.h"
#include "copy/request.h"
#include "endpoint/packets.h"
#include "memory/layout.h"
#include "memory/machine_memory.h"
#include "python_module/bindings.h"

namespace nb = nanobind;

namespace memfabric::python {

void bind_limits(nb::module_& module) {
    module.attr("MAX_RANKS") = kMaxRanks;
    module.attr("MAX_GATHER_BYTES") = kMaxGatherBytes;
    module.attr("FIRST_WAITING_NOTICE_S") = static_cast<double>(kFirstWaitingNotice.count());
    module.attr("LONGEST_WAITING_PAUSE_S") = static_cast<double>(kLongestWaitingPause.count());
    module.attr("SHOWN_RANKS") = kShownRanks;
    module.attr("FAREWELL_S") = static_cast<double>(kFarewell.count());
    module.attr("MAX_BATCH_PIECES") = kMaxBatchPieces;
    module.attr("MAX_NOTIFICATION_BYTES") = kMaxNotificationBytes;
    module.attr("MAX_QUEUED_NOTIFICATIONS") = kMaxQueuedNotifications;
    module.attr("MAX_QUEUED_NOTIFICATION_BYTES") = kMaxQueuedNotificationBytes;
    module.attr("MAX_SUBGROUP_NAME_BYTES") = kMaxSubgroupName;
    module.attr("MAX_CONTEXT_BYTES") = kMaxContextBytes;
    module.attr("MAX_PACKET_BYTES") = kLongestPacketBytes;
    module.attr("MAX_PACKET_FDS") = kMostPacketFds;
    module.attr("LOWEST_OWN_FD") = kLowestOwnFd;
    module.attr("DEVICE_OBJECTS") = kDeviceObjects;
    module.attr("REGION_START") = kRegionStart;
    module.attr("REGION_END") = kRegionEnd;
    module.attr("LOWEST_ADDRESS") = kLowestAddress;
    module.attr("ADDRESS_LIMIT") = kAddressLimit;
    module.attr("HUGE_PAGE_BYTES") = kHugePageBytes;
    module.def("machine_memory_bytes", &machine_bytes,
               "Memory and swap of the machine: more than that can only end in the OOM killer.");
}

}  // namespace memfabric::python
