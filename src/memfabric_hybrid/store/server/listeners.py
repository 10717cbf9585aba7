"""Listening sockets for a store address: resolving, binding, and sentences for what can go wrong."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from memfabric_hybrid.errors import FabricError, InvalidParam, ResourceInUse
from memfabric_hybrid.machine.file_descriptors import open_socket
from memfabric_hybrid.store.limits import BACKLOG
from memfabric_hybrid.store.url import StoreUrl, check_is_tcp


class AddressTaken(ResourceInUse):
    """Some socket has the address. One of a store that is starting is listening already: see `_listener`."""


def listen(url: StoreUrl) -> list[socket.socket]:
    """One socket per address of the URL's host (a name can have several), all bound and listening, or none."""
    check_is_tcp(url)
    listeners: list[socket.socket] = []
    unavailable: OSError | None = None
    try:
        for family, address in _addresses(url):
            try:
                listeners.append(_listener(family, address))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                unavailable = error
        if not listeners:
            raise InvalidParam(f"store URL {url}: {url.host} is not an address of this machine ({unavailable})")
    except OSError as error:
        _close(listeners)
        raise _failure(url, error) from None
    except FabricError:
        _close(listeners)
        raise
    return listeners


def serve_other_hosts(listeners: Sequence[socket.socket]) -> bool:
    """False if nobody but this host can connect there."""
    return not all(ipaddress.ip_address(listener.getsockname()[0]).is_loopback for listener in listeners)


def _addresses(url: StoreUrl) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise InvalidParam(f"store URL {url}: host {url.host!r} cannot be resolved ({error})") from None
    # dict: a name that resolves twice to the same address is bound once
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]


def _listener(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    listener = open_socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # never SO_REUSEPORT: one address, one store
        # Two stores that start together can both bind, and only one can listen: so a loser finds a listener there.
        if family == socket.AF_INET6:
            # Only the wildcard serves both families: a name may resolve to both, and each gets its own socket.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def _failure(url: StoreUrl, error: OSError) -> FabricError:
    if error.errno == errno.EADDRINUSE:
        return AddressTaken(f"store address {url} is taken by another server; choose another port or stop that one")
    if error.errno == errno.EACCES:
        return ResourceInUse(f"store address {url} may not be used by this process ({error}); choose a port above 1023")
    return FabricError(f"store address {url}: cannot listen there ({error})")
