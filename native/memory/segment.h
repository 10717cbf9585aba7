// SPDX-License-Identifier: Apache-2.0
//
// Memory that processes share by passing a file descriptor: no name, so nothing can clash and nothing stays behind.
#pragma once

#include <cstdint>

#include "base/api.h"
#include "base/status.h"

namespace memfabric {

struct SegmentRequest {
    std::uint64_t size_bytes;  // a multiple of 2 MiB
    bool want_huge_pages;      // if the machine has enough of them free; otherwise ordinary pages, quietly
    int numa_node = -1;        // -1 = no wish
    bool numa_strict = false;  // fail rather than place memory elsewhere
};

struct Segment {
    int fd = -1;  // the caller's to close. Sealed: its size never changes, so nobody's mapping can be pulled away
    std::uint64_t page_bytes = 0;
};

MF_API Status create_segment(const SegmentRequest& request, Segment& segment);

}  // namespace memfabric
