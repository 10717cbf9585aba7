// SPDX-License-Identifier: Apache-2.0
#include "tls/socket_bio.h"

#include <sys/socket.h>

#include <cerrno>

#include "tls/library.h"

namespace memfabric::tls {
namespace {

BioSocket& socket_of(abi::Bio* bio) { return *static_cast<BioSocket*>(openssl().bio_get_data(bio)); }

bool would_block() { return errno == EAGAIN || errno == EINTR; }

int receive(abi::Bio* bio, char* bytes, int size) {
    BioSocket& socket = socket_of(bio);
    openssl().bio_clear_flags(bio, abi::kBioRead | abi::kBioWrite | abi::kBioRetry);
    const ssize_t got = recv(socket.fd, bytes, static_cast<std::size_t>(size), MSG_DONTWAIT);
    if (got == 0) socket.ended = true;
    if (got < 0 && would_block()) {
        openssl().bio_set_flags(bio, abi::kBioRead | abi::kBioRetry);
    } else if (got < 0) {
        socket.error = errno;
    }
    return static_cast<int>(got);
}

int keep(abi::Bio* bio, const char* bytes, int size) {
    socket_of(bio).unsent.append(bytes, static_cast<std::size_t>(size));
    return size;
}

long control(abi::Bio*, int command, long, void*) { return command == abi::kBioFlush ? 1 : 0; }

}  // namespace

ssize_t BioSocket::flush() {
    while (sent < unsent.size()) {
        const ssize_t taken = send(fd, unsent.data() + sent, unsent.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken < 0) {
            if (!would_block()) error = errno;
            return -1;
        }
        sent += static_cast<std::size_t>(taken);
    }
    unsent.clear();
    sent = 0;
    return 1;
}

abi::BioMethod* new_socket_method(const abi::Functions& calls) {
    abi::BioMethod* method = calls.bio_method_new(abi::kBioSourceSink, "memfabric socket");
    if (method == nullptr) return nullptr;
    calls.bio_method_set_read(method, receive);
    calls.bio_method_set_write(method, keep);
    calls.bio_method_set_control(method, control);
    return method;
}

abi::Bio* new_socket_bio(BioSocket& socket) {
    abi::Bio* bio = openssl().bio_new(Library::loaded()->socket_method());
    if (bio == nullptr) return nullptr;
    openssl().bio_set_data(bio, &socket);
    openssl().bio_set_init(bio, 1);
    return bio;
}

}  // namespace memfabric::tls
