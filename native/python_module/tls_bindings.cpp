// SPDX-License-Identifier: Apache-2.0
//
// TLS of what goes between hosts: the certificates that the control plane has read, and why two ends do not trust each
// other.
#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "python_module/bindings.h"
#include "python_module/interpreter/gil.h"
#include "python_module/interpreter/raise.h"
#include "tls/context.h"
#include "tls/reasons.h"

namespace nb = nanobind;

namespace memfabric::python {
namespace {

std::string text_of(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

// Key and passphrase are overwritten as soon as OpenSSL has them.
class Given {
public:
    Given(const nb::bytes& authorities, const nb::bytes& revocations, const nb::bytes& certificate,
          const nb::bytes& key, const nb::bytes& passphrase)
        : material_{text_of(authorities), text_of(revocations), text_of(certificate), text_of(key),
                    text_of(passphrase)} {}
    ~Given() {
        for (std::string* const secret : {&material_.key, &material_.passphrase}) {
            explicit_bzero(secret->data(), secret->size());
        }
    }
    Given(const Given&) = delete;
    Given& operator=(const Given&) = delete;

    std::shared_ptr<const tls::Context> context() const {
        std::shared_ptr<const tls::Context> made;
        raise_if_failed(without_gil([&] { return tls::Context::make(material_, made); }));
        return made;
    }

private:
    tls::Material material_;
};

void init_identity(TlsIdentityObject* self, const nb::bytes& authorities, const nb::bytes& revocations,
                   const nb::bytes& certificate, const nb::bytes& key, const nb::bytes& passphrase) {
    const Given given(authorities, revocations, certificate, key, passphrase);
    new (self) TlsIdentityObject{std::make_shared<tls::Identity>(given.context())};
}

void renew_identity(const TlsIdentityObject& self, const nb::bytes& authorities, const nb::bytes& revocations,
                    const nb::bytes& certificate, const nb::bytes& key, const nb::bytes& passphrase) {
    self.identity->renew(Given(authorities, revocations, certificate, key, passphrase).context());
}

}  // namespace

void bind_tls(nb::module_& module) {
    nb::class_<TlsIdentityObject>(module, "TlsIdentity", "Certificates and key of connections between hosts.")
        .def("__init__", &init_identity, nb::arg("authorities"), nb::arg("revocations"), nb::arg("certificate"),
             nb::arg("key"), nb::arg("passphrase"), "All in PEM form. Raises FabricError for what cannot be used.")
        .def("renew", &renew_identity, nb::arg("authorities"), nb::arg("revocations"), nb::arg("certificate"),
             nb::arg("key"), nb::arg("passphrase"), "For connections from now on; raises as the constructor does.");
    module.def("_explain_tls_alert", &tls::explain_alert, nb::arg("alert"), "Why the other end ended a handshake.");
    module.def("_explain_tls_distrust", &tls::explain_distrust, nb::arg("verify_result"), nb::arg("words"),
               "What is wrong with the other end's certificate, and what to do.");
}

}  // namespace memfabric::python
