// SPDX-License-Identifier: Apache-2.0
//
// The Python in which the control plane runs: the one that this process has already, or one that is started here and
// never ended, because nobody can know when the program's last thread has left it.
#pragma once

#include "base/status.h"

namespace memfabric::capi {

// Returns Ok once the control plane serves calls. Any thread, with or without the interpreter's lock; again after a
// failure: tries again. Does nothing else than load, start and import: no member, no socket, no thread.
Status start_control_plane();

}  // namespace memfabric::capi
