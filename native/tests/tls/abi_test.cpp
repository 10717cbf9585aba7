// SPDX-License-Identifier: Apache-2.0
//
// What tls/abi.h declares by hand is what OpenSSL's own headers say.
#include "tls/abi.h"

#include "tests/assertions.h"
#include "tests/called_alike.h"

#if __has_include(<openssl/ssl.h>) && !defined(__aarch64__)  // headers of the build machine are no cross compiler's
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

namespace memfabric::tls::abi {
namespace {

static_assert(kSetMode == SSL_CTRL_MODE && kSetReadAhead == SSL_CTRL_SET_READ_AHEAD);
static_assert(kAddToChain == SSL_CTRL_CHAIN_CERT && kSetOldestVersion == SSL_CTRL_SET_MIN_PROTO_VERSION);
static_assert(kTls13 == TLS1_3_VERSION);
static_assert(kReleaseBuffers == SSL_MODE_RELEASE_BUFFERS);
static_assert(kVerifyPeer == SSL_VERIFY_PEER && kFailWithoutCertificate == SSL_VERIFY_FAIL_IF_NO_PEER_CERT);
static_assert(kCheckRevocation == X509_V_FLAG_CRL_CHECK && kCheckRevocationOfAll == X509_V_FLAG_CRL_CHECK_ALL);
static_assert(kWantRead == SSL_ERROR_WANT_READ && kZeroReturn == SSL_ERROR_ZERO_RETURN);
static_assert(kFirstAlert == SSL_AD_REASON_OFFSET);
static_assert(kNoPeerCertificate == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE && kHttpRequest == SSL_R_HTTP_REQUEST);
static_assert(kUnsupportedProtocol == SSL_R_UNSUPPORTED_PROTOCOL && kWrongVersion == SSL_R_WRONG_VERSION_NUMBER);
static_assert(kNoSharedCipher == SSL_R_NO_SHARED_CIPHER);
static_assert(kBioSourceSink == BIO_TYPE_SOURCE_SINK && kBioFlush == BIO_CTRL_FLUSH);
static_assert(kBioRead == BIO_FLAGS_READ && kBioWrite == BIO_FLAGS_WRITE && kBioRetry == BIO_FLAGS_SHOULD_RETRY);

#define SAME_CALL(ours, theirs) static_assert(tests::is_called_alike<decltype(Functions::ours), decltype(::theirs)>)

SAME_CALL(version, OpenSSL_version_num);
SAME_CALL(method, TLS_method);
SAME_CALL(context_new, SSL_CTX_new);
SAME_CALL(context_free, SSL_CTX_free);
SAME_CALL(context_control, SSL_CTX_ctrl);
SAME_CALL(context_set_verify, SSL_CTX_set_verify);
SAME_CALL(context_set_ciphers, SSL_CTX_set_ciphersuites);
SAME_CALL(context_set_tickets, SSL_CTX_set_num_tickets);
SAME_CALL(context_set_read_buffer, SSL_CTX_set_default_read_buffer_len);
SAME_CALL(context_use_certificate, SSL_CTX_use_certificate);
SAME_CALL(context_use_key, SSL_CTX_use_PrivateKey);
SAME_CALL(context_store, SSL_CTX_get_cert_store);
SAME_CALL(session_new, SSL_new);
SAME_CALL(session_free, SSL_free);
SAME_CALL(session_set_bio, SSL_set_bio);
SAME_CALL(session_accepts, SSL_set_accept_state);
SAME_CALL(session_connects, SSL_set_connect_state);
SAME_CALL(shake_hands, SSL_do_handshake);
SAME_CALL(read, SSL_read_ex);
SAME_CALL(write, SSL_write_ex);
SAME_CALL(get_error, SSL_get_error);
SAME_CALL(has_pending, SSL_has_pending);
SAME_CALL(verify_result, SSL_get_verify_result);
SAME_CALL(bio_method_new, BIO_meth_new);
SAME_CALL(bio_method_set_write, BIO_meth_set_write);
SAME_CALL(bio_method_set_read, BIO_meth_set_read);
SAME_CALL(bio_method_set_control, BIO_meth_set_ctrl);
SAME_CALL(bio_new, BIO_new);
SAME_CALL(bio_of_memory, BIO_new_mem_buf);
SAME_CALL(bio_free, BIO_free);
SAME_CALL(bio_set_data, BIO_set_data);
SAME_CALL(bio_get_data, BIO_get_data);
SAME_CALL(bio_set_init, BIO_set_init);
SAME_CALL(bio_set_flags, BIO_set_flags);
SAME_CALL(bio_clear_flags, BIO_clear_flags);
SAME_CALL(read_certificate, PEM_read_bio_X509);
SAME_CALL(read_revocations, PEM_read_bio_X509_CRL);
SAME_CALL(read_key, PEM_read_bio_PrivateKey);
SAME_CALL(certificate_free, X509_free);
SAME_CALL(revocations_free, X509_CRL_free);
SAME_CALL(key_free, EVP_PKEY_free);
SAME_CALL(store_add_certificate, X509_STORE_add_cert);
SAME_CALL(store_add_revocations, X509_STORE_add_crl);
SAME_CALL(store_set_flags, X509_STORE_set_flags);
SAME_CALL(verify_text, X509_verify_cert_error_string);
SAME_CALL(last_error, ERR_peek_last_error);
SAME_CALL(clear_errors, ERR_clear_error);
SAME_CALL(error_text, ERR_reason_error_string);

#undef SAME_CALL

TEST(TlsAbi, is_that_of_the_headers) { SUCCEED() << "it has compiled"; }

}  // namespace
}  // namespace memfabric::tls::abi
#else
TEST(TlsAbi, is_that_of_the_headers) { GTEST_SKIP() << "OpenSSL's headers are not installed"; }
#endif
