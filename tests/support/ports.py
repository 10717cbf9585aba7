"""Ports nobody else gets while a test uses them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A free port, held by a bound socket that never listens.

    While it is held the kernel gives the port to nobody who asks for "any port"; a server that asks for this one with
    SO_REUSEADDR (as every server that survives a restart must) gets it, and two listeners still exclude each other.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        yield holder.getsockname()[1]
