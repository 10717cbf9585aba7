// SPDX-License-Identifier: Apache-2.0
#include "tls/stream.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tls/library.h"
#include "tls/reasons.h"

namespace memfabric::tls {
namespace {

constexpr long kVerified = 0;

std::string explain_reason(int reason) {
    if (reason > abi::kFirstAlert) return explain_alert(reason - abi::kFirstAlert);
    switch (reason) {
        case abi::kNoPeerCertificate:
            return "it shows no certificate; set_conf_store_tls gives it one";
        case abi::kUnsupportedProtocol:
            return "it does not speak TLS 1.3";
        case abi::kHttpRequest:
            return "it speaks HTTP";
        case abi::kWrongVersion:
            return "it does not speak TLS";
        case abi::kNoSharedCipher:
            return "the two have no way to encrypt in common";
        default:
            return "TLS failed with OpenSSL's error " + std::to_string(reason);
    }
}

}  // namespace

std::unique_ptr<Stream> Stream::open(std::shared_ptr<const Context> context, int fd, Role role) {
    const abi::Functions& calls = openssl();
    calls.clear_errors();
    std::unique_ptr<Stream> stream(new Stream(std::move(context), fd));
    stream->session_ = calls.session_new(stream->context_->get());
    abi::Bio* const bio = stream->session_ == nullptr ? nullptr : new_socket_bio(stream->socket_);
    if (bio == nullptr) {
        calls.clear_errors();
        return nullptr;
    }
    calls.session_set_bio(stream->session_, bio, bio);  // both are the session's now
    role == Role::Client ? calls.session_connects(stream->session_) : calls.session_accepts(stream->session_);
    return stream;
}

Stream::Stream(std::shared_ptr<const Context> context, int fd) : context_(std::move(context)) { socket_.fd = fd; }

Stream::~Stream() {
    if (session_ != nullptr) openssl().session_free(session_);
}

// True: nothing waits for room in the socket.
bool Stream::flush() {
    const bool all = socket_.flush() > 0;
    wants_room_ = !all && socket_.error == 0;
    return all;
}

Handshake Stream::shake_hands() {
    if (ready_) return Handshake::Done;
    openssl().clear_errors();
    const int result = openssl().shake_hands(session_);
    const bool all_sent = flush();  // also what this side thinks of the other, if it has failed
    ssize_t moved = -1;
    if (result == 1) {
        ready_ = all_sent;
        if (all_sent) return Handshake::Done;
        errno = wants_room_ ? EAGAIN : socket_.error;
    } else {
        moved = explain(result);
    }
    if (moved < 0 && errno == EAGAIN) return Handshake::Blocked;
    if (failure_.empty()) {
        failure_ = moved == 0 ? "it ended the connection in the TLS handshake; it speaks no TLS, or its log says why"
                              : std::strerror(errno);
    }
    return Handshake::Failed;
}

ssize_t Stream::read(void* bytes, std::size_t size_bytes) {
    openssl().clear_errors();
    std::size_t got = 0;
    const int result = openssl().read(session_, bytes, size_bytes, &got);
    flush();  // what TLS itself had to answer, if anything
    return result == 1 ? static_cast<ssize_t>(got) : explain(result);
}

ssize_t Stream::write(const void* bytes, std::size_t size_bytes) {
    if (unsent_bytes_ == 0) {
        openssl().clear_errors();
        std::size_t written = 0;
        const int result = openssl().write(session_, bytes, size_bytes, &written);
        if (result != 1) return explain(result);
        unsent_bytes_ = written;
    }
    if (flush()) return static_cast<ssize_t>(std::exchange(unsent_bytes_, 0));
    errno = wants_room_ ? EAGAIN : socket_.error;
    return -1;
}

bool Stream::has_unread() const { return openssl().has_pending(session_) == 1; }

// What a call that did not succeed means, in the words of `read` and `write`.
ssize_t Stream::explain(int result) {
    const int error = openssl().get_error(session_, result);
    if (error == abi::kWantRead) {
        errno = EAGAIN;
        return -1;
    }
    const int reason = Library::loaded()->take_reason();
    if (error == abi::kZeroReturn || socket_.ended) return 0;  // no lengths rely on the end: it need not be signed
    if (socket_.error != 0) {
        errno = socket_.error;
        return -1;
    }
    const long distrust = openssl().verify_result(session_);
    failure_ =
        distrust != kVerified ? explain_distrust(distrust, openssl().verify_text(distrust)) : explain_reason(reason);
    errno = EPROTO;
    return -1;
}

}  // namespace memfabric::tls
