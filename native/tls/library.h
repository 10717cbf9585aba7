// SPDX-License-Identifier: Apache-2.0
//
// OpenSSL as it is found at run time: the one that this process has loaded already (Python's own, as a rule), or the
// system's. Who has no TLS never loads it.
#pragma once

#include <string>

#include "base/api.h"
#include "base/status.h"
#include "tls/abi.h"

namespace memfabric::tls {

// Thread contract: any thread; what `get` gives lives as long as the process.
class MF_API Library {
public:
    // The first success counts for the process; after a failure, which says what to install, it may be tried again.
    static Status load();
    static const Library* loaded();  // nothing until `load` was successful

    const abi::Functions& calls() const { return calls_; }
    const std::string& path() const { return path_; }
    const abi::BioMethod* socket_method() const { return socket_method_; }

    // Takes the calling thread's first error; 0 if there is none.
    int take_reason() const;
    // The same in OpenSSL's own words.
    std::string take_text() const;

private:
    Library() = default;
    Status open();
    Status resolve();
    Status make_socket_method();
    template <typename Function>
    void find(Function& function, const char* name);

    void* handle_ = nullptr;
    abi::Functions calls_{};
    abi::BioMethod* socket_method_ = nullptr;
    std::string missing_;  // the first function that is not there
    std::string path_;
    bool is_before_3_ = false;
};

// The functions of the library that was loaded.
inline const abi::Functions& openssl() { return Library::loaded()->calls(); }

}  // namespace memfabric::tls
