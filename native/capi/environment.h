// SPDX-License-Identifier: Apache-2.0
//
// Which Python this library belongs to: decided by where it is, never by what the program's user has in the shell.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace memfabric::capi {

struct Environment {
    std::string library;   // this very file
    std::string packages;  // the folder in which the package memfabric_hybrid is; "" if only `program` knows
    std::string program;   // the environment's interpreter
    std::vector<std::string> python_libraries;  // where libpython may be, the best first
};

// Error, with a sentence that says what is not where it should be.
Status find_environment(Environment& found);

}  // namespace memfabric::capi
