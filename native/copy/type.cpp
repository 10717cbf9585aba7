// SPDX-License-Identifier: Apache-2.0
#include "copy/type.h"

namespace memfabric {

const char* describe(Classes one) {
    switch (one) {
        case kLocal:
            return "local memory";
        case kLocalHost:
            return "local host memory";
        case kGlobal:
            return "global memory";
        case kGlobalHost:
            return "global host memory";
        default:
            return "memory";
    }
}

}  // namespace memfabric
