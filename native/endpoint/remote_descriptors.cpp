// SPDX-License-Identifier: Apache-2.0
#include "endpoint/remote_descriptors.h"

#include <sys/resource.h>

#include <atomic>

#include "base/last_error.h"

namespace memfabric {
namespace {

std::atomic<std::size_t> all_taken{0};

}  // namespace

Status RemoteDescriptors::take(std::size_t count, RemoteDescriptors& taken) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const std::size_t before = all_taken.fetch_add(count);
    if (before + count > limit.rlim_cur / 2) {
        all_taken.fetch_sub(count);
        return fail(Status::NoResources,
                    "connections of other hosts hold %zu descriptors there, and may hold half of its limit of open "
                    "files; raise that (ulimit -n, now %llu)",
                    before, static_cast<unsigned long long>(limit.rlim_cur));
    }
    taken.give_back();
    taken.count_ = count;
    return Status::Ok;
}

void RemoteDescriptors::give_back() { all_taken.fetch_sub(std::exchange(count_, 0)); }

}  // namespace memfabric
