// SPDX-License-Identifier: Apache-2.0
//
// Shared libraries that are in this process already, whoever loaded them: those found at run time are never loaded
// beside another copy.
#pragma once

#include <string>
#include <string_view>

namespace memfabric {

// The path of the first one whose file's name `is_it` accepts; "" if there is none.
std::string path_of_loaded(bool (*is_it)(std::string_view file));

}  // namespace memfabric
