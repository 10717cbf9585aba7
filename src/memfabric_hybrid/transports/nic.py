"""Which network interface and ports: what a program may say about it, and which ones are right if it says nothing."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple

from memfabric_hybrid import logs
from memfabric_hybrid.errors import InvalidParam

log = logs.get(__name__)
MAX_CHARACTERS = 63
LOOPBACK = "127.0.0.1"
LAST_PORT = 65535
PORTS_TRIED = 1024  # from the one that was given: as many processes of one host may say the same
_NIC = re.compile(r"tcp6?://(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:/]+))(?:/(\d{1,3}))?:(\d{1,5})")


class Nic(NamedTuple):
    """What a program said: an address of this machine, or (with a mask) a network that it has an address in."""

    host: str
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    port: int


class ListenPlace(NamedTuple):
    """Where to listen: at the first of these ports that is free; port 0 is any."""

    host: str  # numeric, without brackets
    first_port: int
    last_port: int


def check_length(nic: str) -> None:
    if len(nic) > MAX_CHARACTERS:
        raise InvalidParam(f"nic has {len(nic)} characters, the limit is {MAX_CHARACTERS}")


def parse(nic: str) -> Nic:
    """InvalidParam if it is not "tcp://ip[/mask]:port"."""
    check_length(nic)
    match = _NIC.fullmatch(nic)
    if match is None or not 0 < int(match[4]) <= LAST_PORT:
        raise InvalidParam(f"nic {nic!r} is not of the form tcp://ip[/mask]:port")
    host, mask = match[1] or match[2], match[3]
    try:
        network = ipaddress.ip_network(f"{host}/{mask}" if mask else host, strict=False)
    except ValueError as error:
        raise InvalidParam(f"nic {nic!r} is not of the form tcp://ip[/mask]:port: {error}") from None
    return Nic(host, network if mask else None, int(match[4]))


def listen_place(nic: str) -> ListenPlace:
    """What that means on this machine. InvalidParam if it has no address in the network."""
    host, network, first_port = parse(nic)
    if network is not None:
        host = address_towards(host, first_port).strip("[]")
        if ipaddress.ip_address(host) not in network:
            raise InvalidParam(f"nic {nic!r}: this machine has no address in {network}; its nearest one is {host}")
    return ListenPlace(host, first_port, min(first_port + PORTS_TRIED - 1, LAST_PORT))


def data_place(nic: str) -> ListenPlace:
    """The same for data alone: without a host if the nic names no address (but devices, or nothing).

    Programs bring one along that was written for another machine: what it names must be of this one, or it is said
    that it decides nothing.
    """
    check_length(nic)
    if "://" not in nic:
        return ListenPlace("", 0, 0)
    try:
        place = listen_place(nic)
        if not _is_own(place.host):
            raise InvalidParam(f"nic {nic!r}: {place.host} is no address of this machine")
    except InvalidParam as failure:
        log.warning("%s; data of other hosts comes in at the session's own address", failure)
        return ListenPlace("", 0, 0)
    return place


def _is_own(host: str) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as unsent:
            unsent.bind((host, 0))
    except OSError:
        return False
    return True


def default_place(store_host: str, store_port: int) -> ListenPlace:
    """Where those who reach the store can reach us."""
    return ListenPlace(address_towards(store_host, store_port).strip("[]"), 0, 0)


def address_towards(host: str, port: int) -> str:
    """This machine's own address on the way to `host`, where those who reach that host can reach us.

    Asks the routing table and sends nothing. The loopback address if there is no way: whoever connects to the host says
    what is wrong. An IPv6 address has brackets.
    """
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return LOOPBACK
    for family, kind, protocol, _, place in places:
        with socket.socket(family, kind, protocol) as unsent:
            try:
                unsent.connect(place)
            except OSError:
                continue
            address: str = unsent.getsockname()[0]
        return f"[{address}]" if ":" in address else address
    return LOOPBACK


def is_loopback(address: str) -> bool:
    """Whether "ip:port" or "[v6]:port" can be reached from this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
