// SPDX-License-Identifier: Apache-2.0
#include "ucx/inherited_sockets.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/fork_guard.h"

namespace memfabric::ucx {
namespace {

constexpr int kNobody = -1;
constexpr int kDeepest = 3;  // a worker watches its devices, and these their connections

struct WatchedTable {
    std::array<std::atomic<int>, 256> descriptors;

    WatchedTable() {
        for (auto& descriptor : descriptors) descriptor = kNobody;
    }
};

WatchedTable& watched_table() {
    static WatchedTable& table = *new WatchedTable;
    return table;
}

std::string watched_by(int fd) {
    char path[48];
    std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    std::string text;
    const int info = ::open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0) return text;
    std::array<char, 4096> part;
    for (ssize_t got = 0; (got = ::read(info, part.data(), part.size())) > 0;) {
        text.append(part.data(), static_cast<std::size_t>(got));
    }
    ::close(info);
    return text;
}

void visit_sockets_behind(int epoll, int depth, const std::function<void(int)>& call) {
    constexpr std::string_view kKey = "tfd:";
    const std::string text = watched_by(epoll);
    for (std::size_t at = text.find(kKey); at != std::string::npos; at = text.find(kKey, at + 1)) {
        const std::size_t number = text.find_first_not_of(' ', at + kKey.size());
        int fd = -1;
        if (number == std::string::npos) return;
        std::from_chars(text.data() + number, text.data() + text.size(), fd);
        struct stat status{};
        if (fstat(fd, &status) != 0) continue;
        if (S_ISSOCK(status.st_mode)) {
            call(fd);
        } else if (depth < kDeepest) {
            visit_sockets_behind(fd, depth + 1, call);
        }
    }
}

void close_inherited() {
    for (auto& descriptor : watched_table().descriptors) {
        if (const int fd = descriptor.exchange(kNobody); fd != kNobody) for_each_watched_socket(fd, &::close);
    }
}

}  // namespace

void for_each_watched_socket(int epoll, const std::function<void(int fd)>& call) {
    visit_sockets_behind(epoll, 1, call);
}

void InheritedSockets::watch(int watching) {
    static const ChildHook hook(close_inherited);
    auto& descriptors = watched_table().descriptors;
    if (place_ >= 0) descriptors[static_cast<std::size_t>(place_)] = kNobody;
    place_ = -1;
    for (std::size_t i = 0; watching >= 0 && i < descriptors.size(); ++i) {
        int nobody = kNobody;
        if (!descriptors[i].compare_exchange_strong(nobody, watching)) continue;
        place_ = static_cast<int>(i);
        return;
    }
}

}  // namespace memfabric::ucx
