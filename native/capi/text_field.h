// SPDX-License-Identifier: Apache-2.0
//
// Text in a field of fixed size, as C structs have it.
#pragma once

#include <smem/host/smem_def.h>

#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/last_error.h"
#include "base/status.h"
#include "bridge/call.h"

namespace memfabric::capi {

// Ok for text that ends within its field.
template <std::size_t kSize>
Status read_field(const char* name, const char (&field)[kSize], std::string_view& text) {
    const std::size_t length = strnlen(field, kSize);
    text = {field, length};
    if (length < kSize) return Status::Ok;
    return fail(Status::InvalidParam, "%s has no end: at most %zu characters and a NUL fit", name, kSize - 1);
}

// The paths of a configuration, in its order; none if it is off.
inline Status read_tls(const char* name, const smem_tls_config& config, bridge::Texts& paths) {
    paths.clear();
    if (!config.tlsEnable) return Status::Ok;
    std::string_view path;
    for (const auto* const field : {&config.caPath, &config.crlPath, &config.certPath, &config.keyPath,
                                    &config.keyPassPath, &config.packagePath, &config.decrypterLibPath}) {
        const Status status = read_field(name, *field, path);
        if (status != Status::Ok) return status;
        paths.push_back(path);
    }
    return Status::Ok;
}

}  // namespace memfabric::capi
