"""Session ids: which of them are addresses, and which are only names. Pure; resolves nothing."""

from __future__ import annotations

import ipaddress
import re

_HOST_AND_PORT = re.compile(r"[^\[\]:]+:[0-9]{1,5}")
_V6_AND_PORT = re.compile(r"\[[^\[\]]+\](:[0-9]{1,5})?")


def is_address(session: str) -> bool:
    """`ip`, `ip:port`, `[v6]`, `[v6]:port`, `host:port` and `localhost`; anything else is a name for the store."""
    if session == "localhost" or _HOST_AND_PORT.fullmatch(session) or _V6_AND_PORT.fullmatch(session):
        return True
    try:
        ipaddress.ip_address(session)
    except ValueError:
        return False
    return True
