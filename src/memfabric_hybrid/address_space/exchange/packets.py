"""Packets with descriptors on a Unix socket.

`socket.send_fds` and `socket.recv_fds` ignore their flags in the Pythons we support, so descriptors would arrive
inheritable, and whoever must not wait would.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memfabric_hybrid import file_descriptors

MAX_FDS = 253  # the kernel's limit for one message
NUMBER = struct.Struct("!Q")  # precedes every packet of an exchange; an answer repeats the number of its request
_INT = array.array("i").itemsize


def send(sock: socket.socket, packet: bytes, fds: Sequence[int], flags: int = 0) -> None:
    """The descriptors stay the caller's."""
    sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [], flags)


class Packet(NamedTuple):
    """`content` is b"" at the end of the connection. Whoever gets it owns the descriptors, none of which is inherited.

    `fds_lost`: there were more descriptors than this process has numbers for; `fds` is empty then.
    """

    content: bytes
    fds: list[int]
    fds_lost: bool

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


def receive(sock: socket.socket, max_bytes: int, flags: int = 0) -> Packet:
    numbers = array.array("i")
    content, enclosed, what, _ = sock.recvmsg(
        max_bytes, socket.CMSG_LEN(MAX_FDS * _INT), flags | socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, data in enclosed:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(data[: len(data) - len(data) % _INT])
    fds, lost = _above_standard_streams(numbers)
    packet = Packet(content, fds, lost or bool(what & socket.MSG_CTRUNC))
    if not packet.fds_lost:
        return packet
    packet.close()
    return packet._replace(fds=[])


def _above_standard_streams(fds: Iterable[int]) -> tuple[list[int], bool]:
    """The same files at numbers that may be ours, and whether some were lost for want of such numbers."""
    ours: list[int] = []
    lost = False
    for fd in fds:
        try:
            ours.append(file_descriptors.own(fd))
        except OSError:
            lost = True
    return ours, lost
