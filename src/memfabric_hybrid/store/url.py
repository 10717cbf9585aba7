"""Where a store is: parsing of `tcp://`, `tcp6://` and `etcd://` addresses. Pure; resolves no names."""

from __future__ import annotations

import ipaddress
import re

import msgspec

from memfabric_hybrid.errors import InvalidParam

SCHEMES = ("tcp", "tcp6", "etcd")
NO_PORT = 0  # stands in `StoreUrl.endpoints` where a URL without a port was allowed

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_INSTANCE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class StoreUrl(msgspec.Struct, frozen=True):
    """A parsed address: one endpoint for tcp and tcp6, one or more for etcd. Hosts carry no brackets."""

    scheme: str
    endpoints: tuple[tuple[str, int], ...]
    instance: str = ""

    @property
    def host(self) -> str:
        return self.endpoints[0][0]

    @property
    def port(self) -> int:
        return self.endpoints[0][1]

    def __str__(self) -> str:
        places = ",".join(_place(host, port) for host, port in self.endpoints)
        return f"{self.scheme}://{places}" + (f"#{self.instance}" if self.instance else "")


def parse_url(text: str, *, port_required: bool = True) -> StoreUrl:
    """Raises InvalidParam that names the wrong part and the URL. A missing port, where allowed, becomes NO_PORT."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidParam(f"store URL {text!r}: must start with tcp://, tcp6:// or etcd://")
    instance = ""
    if scheme == "etcd":
        rest, mark, instance = rest.partition("#")
        if mark and not _INSTANCE.fullmatch(instance):
            raise InvalidParam(
                f"store URL {text!r}: instance {instance!r} after # must be 1 to 64 letters, digits, '.', '_' or '-'"
            )
    places = rest.split(",") if scheme == "etcd" else [rest]
    return StoreUrl(scheme, tuple(_endpoint(text, scheme, place, port_required) for place in places), instance)


def peer_names(url: StoreUrl) -> tuple[str, ...]:
    """What `Store.peer_name` may be there, as far as it can be said without resolving names or asking anybody."""
    if url.scheme == "etcd":
        return ()
    if url.host == "localhost":
        return _place("127.0.0.1", url.port), _place("::1", url.port)
    try:
        address = ipaddress.ip_address(url.host)
    except ValueError:
        return ()
    return (_place(str(address), url.port),)


def check_is_tcp(url: StoreUrl) -> None:
    if url.scheme == "etcd":
        raise InvalidParam(
            f"store URL {url}: etcd is run by its own programs, and no tcp store can be there; use tcp://host:port here"
        )


def _endpoint(text: str, scheme: str, place: str, port_required: bool) -> tuple[str, int]:
    if place.startswith("["):
        host, bracket, after = place[1:].partition("]")
        if not bracket:
            raise InvalidParam(f"store URL {text!r}: the bracket before {host!r} is never closed")
        if after and not after.startswith(":"):
            raise InvalidParam(f"store URL {text!r}: {after!r} after the closing bracket, expected :port")
        _check_ipv6(text, host)
        return host, _port(text, after[1:] if after else None, port_required)
    if place.count(":") > 1:
        raise InvalidParam(f"store URL {text!r}: {place!r} is not host:port; an IPv6 address needs brackets")
    host, colon, port = place.partition(":")
    if scheme == "tcp6":
        raise InvalidParam(f"store URL {text!r}: host {host!r} must be an IPv6 address in brackets for tcp6://")
    _check_host(text, host)
    return host, _port(text, port if colon else None, port_required)


def _port(text: str, port: str | None, required: bool) -> int:
    if port is None:
        if required:
            raise InvalidParam(f"store URL {text!r}: the port is missing, expected :1 to :65535")
        return NO_PORT
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise InvalidParam(f"store URL {text!r}: port {port!r} is not a number from 1 to 65535")
    return int(port)


def _check_ipv6(text: str, host: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError as error:
        raise InvalidParam(f"store URL {text!r}: host {host!r} is not an IPv6 address ({error})") from None


def _check_host(text: str, host: str) -> None:
    if not host:
        raise InvalidParam(f"store URL {text!r}: the host is missing")
    labels = host.split(".")
    if all(label.isdigit() and label.isascii() for label in labels):
        try:
            ipaddress.IPv4Address(host)
        except ValueError as error:
            raise InvalidParam(f"store URL {text!r}: host {host!r} is not an IPv4 address ({error})") from None
        return
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidParam(f"store URL {text!r}: host {host!r} is neither a host name nor an IPv4 address")


def _place(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if port == NO_PORT else f"{shown}:{port}"
