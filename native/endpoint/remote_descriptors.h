// SPDX-License-Identifier: Apache-2.0
//
// The descriptors of this process that whoever is on another host holds open: control links and data connections. All
// of them together get at most half of what the process may have, so that who reaches its ports cannot take the others,
// with which the program opens files and its neighbours come in.
#pragma once

#include <cstddef>
#include <utility>

#include "base/api.h"
#include "base/status.h"

namespace memfabric {

// So many of them, until it is destroyed. Thread contract: any thread; nothing blocks.
class MF_API RemoteDescriptors {
public:
    RemoteDescriptors() = default;  // none
    ~RemoteDescriptors() { give_back(); }
    RemoteDescriptors(RemoteDescriptors&& other) noexcept : count_(std::exchange(other.count_, 0)) {}
    RemoteDescriptors& operator=(RemoteDescriptors&& other) noexcept {
        if (this != &other) {
            give_back();
            count_ = std::exchange(other.count_, 0);
        }
        return *this;
    }

    static Status take(std::size_t count, RemoteDescriptors& taken);

private:
    void give_back();

    std::size_t count_ = 0;
};

}  // namespace memfabric
