// SPDX-License-Identifier: Apache-2.0
//
// Identities for tests, and whether there is an OpenSSL to use them with.
#pragma once

#include <memory>
#include <string>

#include "base/last_error.h"
#include "tests/assertions.h"
#include "tests/tls/certificates.h"
#include "tls/identity.h"
#include "tls/library.h"

namespace memfabric::tests {

inline tls::Material good_material() { return {kAuthority, "", kCertificate, kKey, ""}; }

// "", or why there is no TLS here.
inline std::string no_openssl() { return tls::Library::load() == Status::Ok ? "" : take_last_error(); }

inline std::shared_ptr<tls::Identity> identity_of(const tls::Material& material) {
    std::shared_ptr<const tls::Context> context;
    require_ok(tls::Context::make(material, context));
    return std::make_shared<tls::Identity>(context);
}

inline std::shared_ptr<tls::Identity> good_identity() { return identity_of(good_material()); }

}  // namespace memfabric::tests
