// SPDX-License-Identifier: Apache-2.0
#include "base/loaded_library.h"

#include <link.h>

#include <cstddef>

namespace memfabric {
namespace {

struct LibrarySearch {
    bool (*is_it)(std::string_view file);
    std::string found;
};

}  // namespace

std::string path_of_loaded(bool (*is_it)(std::string_view file)) {
    LibrarySearch search{is_it, {}};
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* context) {
            auto& wanted = *static_cast<LibrarySearch*>(context);
            const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
            if (!wanted.is_it(path.substr(path.rfind('/') + 1))) return 0;
            wanted.found = path;
            return 1;
        },
        &search);
    return search.found;
}

}  // namespace memfabric
