// SPDX-License-Identifier: Apache-2.0
#include "tls/context.h"

#include <cstddef>

#include "base/last_error.h"
#include "tls/library.h"

namespace memfabric::tls {
namespace {

// The first is the quickest that is safe where processors have instructions for it, which is nearly everywhere.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
// Several records with one system call.
constexpr std::size_t kReadBufferBytes = std::size_t{256} << 10;

// Reads one thing in PEM form after the other.
class Pem {
public:
    explicit Pem(const std::string& text) : bio_(openssl().bio_of_memory(text.data(), static_cast<int>(text.size()))) {}
    ~Pem() { openssl().bio_free(bio_); }
    Pem(const Pem&) = delete;
    Pem& operator=(const Pem&) = delete;

    abi::Certificate* next_certificate() { return openssl().read_certificate(bio_, nullptr, nullptr, no_passphrase()); }
    abi::RevocationList* next_revocations() {
        return openssl().read_revocations(bio_, nullptr, nullptr, no_passphrase());
    }
    // OpenSSL asks whoever sits at the terminal for one that it is not given.
    abi::PrivateKey* key(const std::string& passphrase) {
        return openssl().read_key(bio_, nullptr, nullptr, const_cast<char*>(passphrase.c_str()));
    }

private:
    static void* no_passphrase() { return const_cast<char*>(""); }

    abi::Bio* const bio_;
};

Status unusable(const char* what) {
    return fail(Status::InvalidParam, "TLS: %s cannot be used: %s", what, Library::loaded()->take_text().c_str());
}

}  // namespace

Status Context::make(const Material& material, std::shared_ptr<const Context>& made) {
    if (const Status status = Library::load(); status != Status::Ok) return status;
    openssl().clear_errors();
    const std::shared_ptr<Context> context(new Context);
    Status status = context->set_up();
    if (status == Status::Ok) status = context->trust(material);
    if (status == Status::Ok) status = context->identify(material);
    openssl().clear_errors();
    if (status == Status::Ok) made = context;
    return status;
}

Context::~Context() {
    if (context_ != nullptr) openssl().context_free(context_);
}

Status Context::set_up() {
    const abi::Functions& calls = openssl();
    context_ = calls.context_new(calls.method());
    if (context_ == nullptr) return unusable("this OpenSSL");
    calls.context_control(context_, abi::kSetOldestVersion, abi::kTls13, nullptr);
    calls.context_control(context_, abi::kSetMode, abi::kReleaseBuffers, nullptr);
    calls.context_control(context_, abi::kSetReadAhead, 1, nullptr);
    calls.context_set_read_buffer(context_, kReadBufferBytes);
    calls.context_set_verify(context_, abi::kVerifyPeer | abi::kFailWithoutCertificate, nullptr);
    // Every connection shows its certificate: one that was revoked meanwhile is not resumed. And a connection that is
    // at rest has nothing to read.
    calls.context_set_tickets(context_, 0);
    return calls.context_set_ciphers(context_, kCiphers) == 1 ? Status::Ok : unusable("this OpenSSL");
}

Status Context::trust(const Material& material) {
    const abi::Functions& calls = openssl();
    abi::Store* const store = calls.context_store(context_);
    std::size_t authorities = 0;
    Pem pem(material.authorities);
    while (abi::Certificate* const authority = pem.next_certificate()) {
        authorities += static_cast<std::size_t>(calls.store_add_certificate(store, authority) == 1);
        calls.certificate_free(authority);
    }
    if (authorities == 0) return unusable("the authorities");
    if (material.revocations.empty()) return Status::Ok;
    std::size_t lists = 0;
    Pem revocations(material.revocations);
    while (abi::RevocationList* const list = revocations.next_revocations()) {
        lists += static_cast<std::size_t>(calls.store_add_revocations(store, list) == 1);
        calls.revocations_free(list);
    }
    if (lists == 0) return unusable("the lists of revoked certificates");
    calls.store_set_flags(store, abi::kCheckRevocation | abi::kCheckRevocationOfAll);
    return Status::Ok;
}

Status Context::identify(const Material& material) {
    const abi::Functions& calls = openssl();
    Pem pem(material.certificate);
    abi::Certificate* const own = pem.next_certificate();
    if (own == nullptr) return unusable("the certificate");
    const bool used = calls.context_use_certificate(context_, own) == 1;
    calls.certificate_free(own);
    if (!used) return unusable("the certificate");
    while (abi::Certificate* const between = pem.next_certificate()) {
        calls.context_control(context_, abi::kAddToChain, 1, between);
        calls.certificate_free(between);
    }
    calls.clear_errors();  // the end of the text was one
    return use_key(material);
}

Status Context::use_key(const Material& material) {
    const abi::Functions& calls = openssl();
    abi::PrivateKey* const key = Pem(material.key).key(material.passphrase);
    if (key == nullptr) {
        calls.clear_errors();
        return fail(Status::InvalidParam,
                    "TLS: the private key cannot be read: it is no PEM key, or its passphrase is another");
    }
    const bool used = calls.context_use_key(context_, key) == 1;  // which compares it with the certificate
    calls.key_free(key);
    if (used) return Status::Ok;
    calls.clear_errors();
    return fail(Status::InvalidParam, "TLS: the certificate does not belong to the private key");
}

}  // namespace memfabric::tls
