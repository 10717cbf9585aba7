// SPDX-License-Identifier: Apache-2.0
#include "memory/process_limits.h"

#include <sys/resource.h>

#include <cerrno>

namespace memfabric {
namespace {

// "" if there is no such limit.
std::string limited_to(const char* what, __rlimit_resource_t resource, const char* option) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
    return std::string("; ") + what + std::to_string(limit.rlim_cur) + " (raise ulimit " + option + ")";
}

}  // namespace

std::string limit_in_the_way(int error) {
    switch (error) {
        case ENOMEM:
            return limited_to("the bytes that this process may map are limited to ", RLIMIT_AS, "-v");
        case EFBIG:
            return limited_to("the bytes of a file of this process are limited to ", RLIMIT_FSIZE, "-f");
        case EMFILE:
            return limited_to("the descriptors of this process are limited to ", RLIMIT_NOFILE, "-n");
        default:
            return "";
    }
}

}  // namespace memfabric
