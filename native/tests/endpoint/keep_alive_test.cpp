// SPDX-License-Identifier: Apache-2.0
//
// How often a connection is probed on which nothing is under way, and when it ends.
#include "endpoint/keep_alive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/owned_fd.h"
#include "tests/assertions.h"

namespace memfabric {
namespace {

using namespace memfabric::tests;
using namespace std::chrono_literals;

struct Watch {
    int idle_s, interval_s, user_timeout_ms;
};

int option(int fd, int name) {
    int value = 0;
    socklen_t bytes = sizeof value;
    require(getsockopt(fd, IPPROTO_TCP, name, &value, &bytes) == 0);
    return value;
}

Watch watch_with(std::chrono::milliseconds timeout) {
    set_host_timeout(timeout);
    const OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    keep_alive(fd.get());
    set_host_timeout(3s);
    return {option(fd.get(), TCP_KEEPIDLE), option(fd.get(), TCP_KEEPINTVL), option(fd.get(), TCP_USER_TIMEOUT)};
}

// The kernel ends the connection at the first moment after the time-out at which the next probe would be due.
TEST(KeepAlive, lost_probes_are_followed_by_others_before_the_end) {
    for (const auto timeout : {100ms, 1000ms, 2000ms, 3000ms, 10'000ms, 60'000ms}) {
        const Watch watch = watch_with(timeout);
        EXPECT_GE(watch.user_timeout_ms, (watch.idle_s + 4 * watch.interval_s) * 1000) << timeout.count();
        EXPECT_LE(watch.user_timeout_ms, std::max<std::int64_t>(timeout.count(), 5000)) << timeout.count();
    }
}

}  // namespace
}  // namespace memfabric
