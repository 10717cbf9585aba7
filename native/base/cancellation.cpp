// SPDX-License-Identifier: Apache-2.0
#include "base/cancellation.h"

namespace memfabric {

constinit thread_local Cancellation* Cancellation::current_ = nullptr;

}  // namespace memfabric
