"""Which network interface: what a program may say about it, and which one is right if it says nothing."""

from __future__ import annotations

import socket

from memfabric_hybrid.errors import InvalidParam

MAX_CHARACTERS = 63
LOOPBACK = "127.0.0.1"


def check_length(nic: str) -> None:
    if len(nic) > MAX_CHARACTERS:
        raise InvalidParam(f"nic has {len(nic)} characters, the limit is {MAX_CHARACTERS}")


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
