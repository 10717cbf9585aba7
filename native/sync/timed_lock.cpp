// SPDX-License-Identifier: Apache-2.0
#include "sync/timed_lock.h"

namespace memfabric {

constinit thread_local char TimedLock::own_mark_ = 0;

}  // namespace memfabric
