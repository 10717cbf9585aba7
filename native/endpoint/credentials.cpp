// SPDX-License-Identifier: Apache-2.0
#include "endpoint/credentials.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace memfabric {
namespace {

// Whether our user namespace is one in which every user has a number of its own, as that of the whole machine is.
bool knows_all_users() {
    constexpr std::uint64_t kAll = 0xffff'ffff;
    std::uint64_t first = 1;
    std::uint64_t outside = 0;
    std::uint64_t count = 0;
    std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
    return first == 0 && count == kAll;
}

}  // namespace

bool peer_of(int fd, ucred& peer) {
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
}

bool is_our_user(const ucred& process) {
    if (process.uid == 0) return true;
    if (process.uid != geteuid()) return false;
    uid_t overflow = 65534;
    std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
    if (process.uid != overflow || knows_all_users()) return true;
    struct stat look{};
    return stat(("/proc/" + std::to_string(process.pid) + "/ns/user").c_str(), &look) == 0;
}

}  // namespace memfabric
