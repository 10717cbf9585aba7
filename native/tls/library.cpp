// SPDX-License-Identifier: Apache-2.0
#include "tls/library.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/last_error.h"
#include "base/loaded_library.h"
#include "tls/socket_bio.h"

namespace memfabric::tls {
namespace {

constexpr std::array<const char*, 2> kSystemLibraries{"libssl.so.3", "libssl.so.1.1"};
constexpr unsigned long kOldest = 0x1010100f;  // 1.1.1
constexpr unsigned long kVersion3 = 0x30000000;

std::mutex library_mutex;
std::atomic<const Library*> the_library{nullptr};

bool is_named_ssl(std::string_view file) { return file.starts_with("libssl.so."); }

}  // namespace

const Library* Library::loaded() { return the_library.load(std::memory_order_acquire); }

Status Library::load() {
    const std::lock_guard lock(library_mutex);
    if (the_library.load(std::memory_order_relaxed) != nullptr) return Status::Ok;
    std::unique_ptr<Library> library(new Library);
    Status status = library->open();
    if (status == Status::Ok) status = library->resolve();
    if (status == Status::Ok) status = library->make_socket_method();
    if (status == Status::Ok) the_library.store(library.release(), std::memory_order_release);
    return status;
}

Status Library::open() {
    path_ = path_of_loaded(is_named_ssl);
    if (!path_.empty()) handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    for (std::size_t i = 0; handle_ == nullptr && i < kSystemLibraries.size(); ++i) {
        path_ = kSystemLibraries[i];
        handle_ = dlopen(kSystemLibraries[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (handle_ != nullptr) return Status::Ok;
    return fail(Status::NoResources,
                "OpenSSL, which encrypts data between hosts, cannot be loaded: %s; install it (Debian, Ubuntu: "
                "libssl3), or set MF_DATA_TLS=off if the network is trusted",
                dlerror());
}

template <typename Function>
void Library::find(Function& function, const char* name) {
    void* symbol = dlsym(handle_, name);  // also of libcrypto, which libssl brings
    if (symbol == nullptr && missing_.empty()) missing_ = name;
    std::memcpy(&function, &symbol, sizeof symbol);
}

Status Library::resolve() {
    find(calls_.version, "OpenSSL_version_num");
    find(calls_.method, "TLS_method");
    find(calls_.context_new, "SSL_CTX_new");
    find(calls_.context_free, "SSL_CTX_free");
    find(calls_.context_control, "SSL_CTX_ctrl");
    find(calls_.context_set_verify, "SSL_CTX_set_verify");
    find(calls_.context_set_ciphers, "SSL_CTX_set_ciphersuites");
    find(calls_.context_set_tickets, "SSL_CTX_set_num_tickets");
    find(calls_.context_set_read_buffer, "SSL_CTX_set_default_read_buffer_len");
    find(calls_.context_use_certificate, "SSL_CTX_use_certificate");
    find(calls_.context_use_key, "SSL_CTX_use_PrivateKey");
    find(calls_.context_store, "SSL_CTX_get_cert_store");
    find(calls_.session_new, "SSL_new");
    find(calls_.session_free, "SSL_free");
    find(calls_.session_set_bio, "SSL_set_bio");
    find(calls_.session_accepts, "SSL_set_accept_state");
    find(calls_.session_connects, "SSL_set_connect_state");
    find(calls_.shake_hands, "SSL_do_handshake");
    find(calls_.read, "SSL_read_ex");
    find(calls_.write, "SSL_write_ex");
    find(calls_.get_error, "SSL_get_error");
    find(calls_.has_pending, "SSL_has_pending");
    find(calls_.verify_result, "SSL_get_verify_result");
    find(calls_.bio_method_new, "BIO_meth_new");
    find(calls_.bio_method_set_write, "BIO_meth_set_write");
    find(calls_.bio_method_set_read, "BIO_meth_set_read");
    find(calls_.bio_method_set_control, "BIO_meth_set_ctrl");
    find(calls_.bio_new, "BIO_new");
    find(calls_.bio_of_memory, "BIO_new_mem_buf");
    find(calls_.bio_free, "BIO_free");
    find(calls_.bio_set_data, "BIO_set_data");
    find(calls_.bio_get_data, "BIO_get_data");
    find(calls_.bio_set_init, "BIO_set_init");
    find(calls_.bio_set_flags, "BIO_set_flags");
    find(calls_.bio_clear_flags, "BIO_clear_flags");
    find(calls_.read_certificate, "PEM_read_bio_X509");
    find(calls_.read_revocations, "PEM_read_bio_X509_CRL");
    find(calls_.read_key, "PEM_read_bio_PrivateKey");
    find(calls_.certificate_free, "X509_free");
    find(calls_.revocations_free, "X509_CRL_free");
    find(calls_.key_free, "EVP_PKEY_free");
    find(calls_.store_add_certificate, "X509_STORE_add_cert");
    find(calls_.store_add_revocations, "X509_STORE_add_crl");
    find(calls_.store_set_flags, "X509_STORE_set_flags");
    find(calls_.verify_text, "X509_verify_cert_error_string");
    find(calls_.last_error, "ERR_peek_last_error");
    find(calls_.clear_errors, "ERR_clear_error");
    find(calls_.error_text, "ERR_reason_error_string");
    if (missing_.empty() && calls_.version() >= kOldest) {
        is_before_3_ = calls_.version() < kVersion3;
        return Status::Ok;
    }
    return fail(Status::NoResources,
                "%s encrypts no data between hosts: it is older than OpenSSL 1.1.1, or something else; install OpenSSL "
                "3 (Debian, Ubuntu: libssl3), or set MF_DATA_TLS=off if the network is trusted",
                path_.c_str());
}

Status Library::make_socket_method() {
    socket_method_ = new_socket_method(calls_);
    if (socket_method_ != nullptr) return Status::Ok;
    return fail(Status::NoResources, "OpenSSL of %s has no memory left", path_.c_str());
}

int Library::take_reason() const {
    const unsigned long error = calls_.last_error();
    calls_.clear_errors();
    return is_before_3_ ? abi::reason_of_1_1(error) : abi::reason_of(error);
}

std::string Library::take_text() const {
    const char* const text = calls_.error_text(calls_.last_error());
    calls_.clear_errors();
    return text == nullptr ? "OpenSSL does not say why" : text;
}

}  // namespace memfabric::tls
