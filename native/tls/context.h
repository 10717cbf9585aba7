// SPDX-License-Identifier: Apache-2.0
//
// Certificates and key, as OpenSSL uses them for connections: TLS 1.3, both sides show a certificate of an authority
// that is given here, and nothing else is trusted. Names in certificates are not compared: whoever has one of the
// cluster's authority is in the cluster, as with the store (docs/security.md).
#pragma once

#include <memory>
#include <string>

#include "base/api.h"
#include "base/status.h"
#include "tls/abi.h"

namespace memfabric::tls {

// All of it in PEM form, several behind each other where there may be several.
struct Material {
    std::string authorities;
    std::string revocations;  // "": nobody asks for them
    std::string certificate;  // and those between it and the authority
    std::string key;
    std::string passphrase;
};

// Thread contract: any thread; it never changes. Both for those who connect and for those who are connected to.
class MF_API Context {
public:
    // InvalidParam, with a sentence, for what cannot be used; NoResources without OpenSSL.
    static Status make(const Material& material, std::shared_ptr<const Context>& made);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    abi::Context* get() const { return context_; }

private:
    Context() = default;
    Status set_up();
    Status trust(const Material& material);
    Status identify(const Material& material);
    Status use_key(const Material& material);

    abi::Context* context_ = nullptr;
};

}  // namespace memfabric::tls
