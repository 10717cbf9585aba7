// SPDX-License-Identifier: Apache-2.0
//
// UCX as it is found at run time. Looked for in this order, and never loaded beside another one that is in the process
// already: two copies would both hook the process's memory calls and know nothing of each other.
//
//     chosen     a path (MF_UCX_LIBRARY)
//     loaded     by somebody else of this process
//     system     libucp.so.0, wherever the loader finds it
//     wheel      the one that a Python package brings
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/api.h"
#include "base/status.h"
#include "ucx/abi.h"

namespace memfabric::ucx {

// Thread contract: `load` and `loaded` from any thread; what they give lives as long as the process.
class MF_API Library {
public:
    struct Search {
        std::string chosen;  // "": none
        std::string wheel;   // "": none is installed
    };

    // The first success counts for the process; after a failure, which says what to install, it may be tried again.
    static Status load(const Search& search);
    static const Library* loaded();  // nothing until `load` was successful

    const abi::Functions& calls() const { return calls_; }
    const std::string& path() const { return path_; }
    const std::string& version() const { return version_; }  // "1.13.1"
    std::string text(abi::Result result) const { return calls_.status_text(result); }

private:
    Library() = default;
    Status open(const Search& search);
    Status open_file(const std::string& file, const std::string& loaded_from);
    Status resolve();
    template <typename Function>
    void find(Function& function, const char* name);

    void* handle_ = nullptr;
    abi::Functions calls_{};
    std::string missing_;  // the first function that is not there
    std::string path_;
    std::string version_;
};

}  // namespace memfabric::ucx
