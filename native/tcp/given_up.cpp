// SPDX-License-Identifier: Apache-2.0
#include "tcp/given_up.h"

#include <algorithm>

namespace memfabric::tcp {

GivenUp& GivenUp::process() {
    static GivenUp& given_up = *new GivenUp;
    return given_up;
}

void GivenUp::add(const InstanceId& target, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    numbers_[target].push_back(number);
    targets_.store(numbers_.size(), std::memory_order_release);
}

std::vector<std::uint64_t> GivenUp::of(const InstanceId& target) const {
    if (targets_.load(std::memory_order_acquire) == 0) return {};
    const std::lock_guard lock(mutex_);
    const auto found = numbers_.find(target);
    return found == numbers_.end() ? std::vector<std::uint64_t>() : found->second;
}

void GivenUp::settle(const InstanceId& target, std::span<const std::uint64_t> numbers) {
    const std::lock_guard lock(mutex_);
    const auto found = numbers_.find(target);
    if (found == numbers_.end()) return;
    std::erase_if(found->second,
                  [&](std::uint64_t number) { return std::ranges::find(numbers, number) != numbers.end(); });
    if (found->second.empty()) numbers_.erase(found);
    targets_.store(numbers_.size(), std::memory_order_release);
}

// The connections were the parent's, which goes on with them.
void GivenUp::begin_in_child() {
    numbers_.clear();
    targets_.store(0, std::memory_order_release);
    mutex_.unlock();
}

}  // namespace memfabric::tcp
