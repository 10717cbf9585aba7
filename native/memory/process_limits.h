// SPDX-License-Identifier: Apache-2.0
//
// Which limit of this process made the kernel refuse memory, for sentences.
#pragma once

#include <string>

namespace memfabric {

// After memfd_create, ftruncate or mmap failed with `error`: "; …" with the limit, its figure and how to raise it, or
// "" if no limit of the process is known to be behind it.
std::string limit_in_the_way(int error);

}  // namespace memfabric
