"""Session ids: which of them are addresses, which are names, and which are neither. Pure; resolves nothing."""

from __future__ import annotations

import ipaddress
import re

from memfabric_hybrid.errors import InvalidParam

_HOST_AND_PORT = re.compile(r"[^\[\]:]+:[0-9]{1,5}")
_V6_AND_PORT = re.compile(r"\[[^\[\]]+\](:[0-9]{1,5})?")
_NAME = re.compile(r"[\w.@/+-]{1,255}")
_BEGUN_ADDRESS = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(\.|$)|[0-9.]*$")  # "127.0.0.1_77" and "127.1" are no names


def is_address(session: str) -> bool:
    """`ip`, `ip:port`, `[v6]`, `[v6]:port`, `host:port` and `localhost`; anything else is a name, or nothing."""
    if session == "localhost" or _HOST_AND_PORT.fullmatch(session) or _V6_AND_PORT.fullmatch(session):
        return True
    try:
        ipaddress.ip_address(session)
    except ValueError:
        return False
    return True


def check_name(session: str) -> None:
    """InvalidParam for what nobody means as a name: an address with a slip of the pen, which no peer could dial."""
    if not _NAME.fullmatch(session) or _BEGUN_ADDRESS.match(session):
        raise InvalidParam(
            f"session_id {session[:300]!r} is neither an address (ip:port, [ipv6]:port, host:port) nor a name "
            "(1 to 255 letters, digits and . _ - @ / +): no peer could reach it"
        )
