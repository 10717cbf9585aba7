// SPDX-License-Identifier: Apache-2.0
#include "process_limits.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>

namespace {

using Clock = std::chrono::steady_clock;

bool write_all(pid_t pid, const uint64_t* targets, const uint64_t* sources, const uint64_t* sizes, uint32_t count) {
    std::array<iovec, IOV_MAX> local;
    std::array<iovec, IOV_MAX> remote;
    for (uint32_t done = 0; done < count;) {
        const uint32_t part = std::min<uint32_t>(IOV_MAX, count - done);
        ssize_t expected = 0;
        for (uint32_t i = 0; i < part; ++i) {
            local[i] = {reinterpret_cast<void*>(sources[done + i]), sizes[done + i]};
            remote[i] = {reinterpret_cast<void*>(targets[done + i]), sizes[done + i]};
            expected += static_cast<ssize_t>(sizes[done + i]);
        }
        if (process_vm_writev(pid, local.data(), part, remote.data(), part, 0) != expected) return false;
        done += part;
    }
    return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) double mf_process_limit(int pid, const uint64_t* targets,
                                                                          const uint64_t* sources,
                                                                          const uint64_t* sizes, uint32_t count) {
    const Clock::time_point start = Clock::now();
    if (!write_all(pid, targets, sources, sizes, count)) return -1;
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}
