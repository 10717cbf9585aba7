// SPDX-License-Identifier: Apache-2.0
#include "endpoint/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/interruption.h"
#include "base/last_error.h"
#include "base/limits.h"
#include "endpoint/socket_option.h"

namespace memfabric {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Status resolve(const SessionAddress& address, bool to_listen, Addresses& found) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
    addrinfo* list = nullptr;
    const int failure = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
    if (failure != 0) {
        return fail(to_listen ? Status::InvalidParam : Status::NotConnected, "session %s: host '%s' is unknown: %s",
                    address.text().c_str(), address.host.c_str(), gai_strerror(failure));
    }
    found = Addresses(list, &freeaddrinfo);
    return Status::Ok;
}

OwnedFd make_socket(int family) { return OwnedFd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// The kernel may connect a socket to itself when nobody listens on a port of its own choice.
bool is_connected_to_itself(int fd) {
    sockaddr_storage own{};
    sockaddr_storage other{};
    socklen_t own_bytes = sizeof own;
    socklen_t other_bytes = sizeof other;
    return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
           getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_bytes) == 0 && own_bytes == other_bytes &&
           std::memcmp(&own, &other, own_bytes) == 0;
}

// 0, or the errno.
int connect_one(const addrinfo& one, Deadline deadline, OwnedFd& connection) {
    OwnedFd fd = make_socket(one.ai_family);
    if (!fd) return errno;
    if (connect(fd.get(), one.ai_addr, one.ai_addrlen) != 0) {
        if (errno != EINPROGRESS) return errno;
        const Status ready = wait_for_socket(fd.get(), POLLOUT, deadline);
        if (ready != Status::Ok) return ready == Status::Interrupted ? EINTR : ETIMEDOUT;
        int error = 0;
        socklen_t error_bytes = sizeof error;
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
        if (error != 0) return error;
    }
    if (is_connected_to_itself(fd.get())) return ECONNREFUSED;
    set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    connection = std::move(fd);
    return 0;
}

}  // namespace

Status SessionAddress::parse(std::string_view text, SessionAddress& parsed) {
    const std::string shown(text.substr(0, 300));
    std::string_view host = text;
    std::string_view port;
    bool has_port = false;
    if (text.starts_with('[')) {
        const std::size_t bracket = text.find(']');
        if (bracket == text.npos || (bracket + 1 < text.size() && text[bracket + 1] != ':')) {
            return fail(Status::InvalidParam, "session '%s' is not of the form [ipv6]:port", shown.c_str());
        }
        host = text.substr(1, bracket - 1);
        has_port = bracket + 1 < text.size();
        if (has_port) port = text.substr(bracket + 2);
    } else if (std::ranges::count(text, ':') == 1) {  // more of them: a bare IPv6 address
        host = text.substr(0, text.find(':'));
        port = text.substr(text.find(':') + 1);
        has_port = true;
    }
    const auto is_of_a_host = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
    };
    if (host.empty() || host.size() > 253 || !std::ranges::all_of(host, is_of_a_host)) {
        return fail(Status::InvalidParam, "session '%s': '%.*s' is no host, expected ip:port, [ipv6]:port or a name",
                    shown.c_str(), static_cast<int>(std::min<std::size_t>(host.size(), 253)), host.data());
    }
    unsigned number = 0;
    if (has_port) {
        const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
        if (error != std::errc() || end != port.data() + port.size() || number > 65535) {
            return fail(Status::InvalidParam, "session '%s': port '%.*s' is not a number from 0 to 65535",
                        shown.c_str(), static_cast<int>(std::min<std::size_t>(port.size(), 20)), port.data());
        }
    }
    parsed.host = std::string(host);
    parsed.port = static_cast<std::uint16_t>(number);
    return Status::Ok;
}

bool SessionAddress::of_peer(int fd, SessionAddress& address) {
    sockaddr_storage peer{};
    socklen_t peer_bytes = sizeof peer;
    char host[NI_MAXHOST];
    char port[NI_MAXSERV];
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr*>(&peer), peer_bytes, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return false;
    }
    address.host = host;
    address.port = static_cast<std::uint16_t>(std::stoi(port));
    return true;
}

std::string SessionAddress::text() const {
    const std::string shown = host.find(':') == host.npos ? host : "[" + host + "]";
    return port == 0 ? shown : shown + ":" + std::to_string(port);
}

Status reserve_port(OwnedFd& holder, std::uint16_t& port) {
    // Bound to every address, of both families where there are two; addresses may be reused, so that the engine can
    // listen on the port while this socket still holds it.
    OwnedFd fd = make_socket(AF_INET6);
    sockaddr_in6 any6{};
    any6.sin6_family = AF_INET6;
    if (fd) {
        set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
        set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    }
    if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&any6), sizeof any6) != 0) {
        fd = make_socket(AF_INET);
        sockaddr_in any4{};
        any4.sin_family = AF_INET;
        if (fd) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
        if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&any4), sizeof any4) != 0) {
            return fail(Status::NoResources, "cannot reserve a port: %s", std::strerror(errno));
        }
    }
    port = port_of(fd.get());
    holder = std::move(fd);
    return Status::Ok;
}

std::uint16_t port_of(int fd) {
    sockaddr_storage bound{};
    socklen_t bound_bytes = sizeof bound;
    getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &bound_bytes);
    return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

Status listen_at(const SessionAddress& address, OwnedFd& listener) {
    Addresses addresses(nullptr, &freeaddrinfo);
    if (const Status status = resolve(address, /*to_listen=*/true, addresses); status != Status::Ok) return status;
    int error = EADDRNOTAVAIL;
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
        OwnedFd fd = make_socket(one->ai_family);
        if (!fd) {
            error = errno;
            continue;
        }
        set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
        if (bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 && listen(fd.get(), kBacklog) == 0) {
            listener = std::move(fd);
            return Status::Ok;
        }
        error = errno;
        if (error == EADDRINUSE) break;
    }
    if (error == EADDRINUSE) {
        return fail(Status::ResourceInUse,
                    "session %s: port %u is taken by another process or engine; choose another one, or port 0",
                    address.text().c_str(), address.port);
    }
    return fail(error == EADDRNOTAVAIL ? Status::InvalidParam : Status::NoResources, "session %s: cannot listen: %s%s",
                address.text().c_str(), std::strerror(error),
                error == EADDRNOTAVAIL ? "; the host must be an address of this machine" : "");
}

Status connect_to(const SessionAddress& address, Deadline deadline, OwnedFd& connection) {
    Addresses addresses(nullptr, &freeaddrinfo);
    if (const Status status = resolve(address, /*to_listen=*/false, addresses); status != Status::Ok) return status;
    int error = ECONNREFUSED;
    for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
        error = connect_one(*one, deadline, connection);
        if (error == 0) return Status::Ok;
        if (error == EINTR) return Status::Interrupted;
    }
    return fail(Status::NotConnected, "session %s cannot be reached: %s; is its engine running?",
                address.text().c_str(), std::strerror(error));
}

Status wait_for_socket(int fd, short events, Deadline deadline) {
    for (;;) {
        const auto left = deadline - std::chrono::steady_clock::now();
        const auto step = std::chrono::ceil<std::chrono::milliseconds>(Interruption::slice(left));
        pollfd waited{fd, events, 0};
        if (poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(0, step.count()))) > 0) return Status::Ok;
        if (left <= left.zero()) return Status::Timeout;
        if (Interruption::requested()) return Status::Interrupted;
    }
}

}  // namespace memfabric
