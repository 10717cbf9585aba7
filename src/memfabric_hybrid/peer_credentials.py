"""Who is at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import os
import socket
import sys


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the other end."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(packed[0:4], sys.byteorder, signed=True), int.from_bytes(packed[4:8], sys.byteorder)


def is_our_user(uid: int) -> bool:
    """Whether that is our user, or root. A first sieve: user namespaces can make strangers look like user 65534."""
    return uid in (os.geteuid(), 0)


def check_user(connection: socket.socket) -> None:
    """PermissionError unless the other end is a process of our user, or root's."""
    pid, uid = peer_credentials(connection)
    if not is_our_user(uid):
        raise PermissionError(f"process {pid} belongs to user {uid}, not to user {os.geteuid()}")
