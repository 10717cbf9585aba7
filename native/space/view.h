// SPDX-License-Identifier: Apache-2.0
//
// A promise that a piece of a rank's memory stays mapped: arrays on the memory hold one. The contents are whatever the
// rank last wrote; if it is gone and another takes its slot, the view shows the newcomer's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/api.h"

namespace memfabric {

class Space;

class MF_API View {
public:
    View(std::shared_ptr<Space> space, std::uint32_t rank, std::byte* data, std::size_t size_bytes);
    ~View();
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    std::byte* data() const { return data_; }
    std::size_t size_bytes() const { return size_bytes_; }

private:
    std::shared_ptr<Space> space_;
    std::uint32_t rank_;
    std::byte* data_;
    std::size_t size_bytes_;
};

}  // namespace memfabric
