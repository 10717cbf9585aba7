// SPDX-License-Identifier: Apache-2.0
#include "sync/robust_futex.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace memfabric {

bool RobustFutex::hold() {
    entry_.next = &head_.list;
    head_.list.next = &entry_;
    head_.futex_offset = reinterpret_cast<char*>(&word_) - reinterpret_cast<char*>(&entry_);
    const bool kernel_tells = syscall(SYS_set_robust_list, &head_, sizeof head_) == 0;
    word_.store(static_cast<std::uint32_t>(syscall(SYS_gettid)));
    return kernel_tells;
}

void RobustFutex::let_go() {
    head_.list.next = &head_.list;
    syscall(SYS_set_robust_list, nullptr, sizeof head_);
}

}  // namespace memfabric
