// SPDX-License-Identifier: Apache-2.0
//
// Our own side of a move, looked at before UCX is given it: UCX reads and writes it with plain instructions, and would
// end the process where the kernel answers with an error.
#pragma once

#include "transports/transport.h"

namespace memfabric::ucx {

// Whether every page of it is mapped, for this direction. Budget of one small piece: one system call.
bool buffers_are_accessible(const Move& move);

}  // namespace memfabric::ucx
