// SPDX-License-Identifier: Apache-2.0
#include "base/interruption.h"

namespace memfabric {

constinit thread_local Interruption* Interruption::current_ = nullptr;

}  // namespace memfabric
