"""Packets with descriptors on a Unix socket.

`socket.send_fds` and `socket.recv_fds` ignore their flags in the Pythons we support, so descriptors would arrive
inheritable, and whoever must not wait would.
"""

from __future__ import annotations

import array
import socket
from collections.abc import Sequence

MAX_FDS = 253  # the kernel's limit for one message
_INT = array.array("i").itemsize


def send(sock: socket.socket, packet: bytes, fds: Sequence[int], flags: int = 0) -> None:
    """The descriptors stay the caller's."""
    sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [], flags)


def receive(sock: socket.socket, max_bytes: int, flags: int = 0) -> tuple[bytes, list[int]]:
    """The packet, b"" at the end of the connection, and its descriptors, which no program that is started inherits."""
    fds = array.array("i")
    packet, enclosed, _, _ = sock.recvmsg(max_bytes, socket.CMSG_LEN(MAX_FDS * _INT), flags | socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in enclosed:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % _INT])
    return packet, list(fds)
