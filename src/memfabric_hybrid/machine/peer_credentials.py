"""Who is at the other end of a Unix socket, as the kernel knows it."""

from __future__ import annotations

import os
import socket
import sys

from memfabric_hybrid import _native


class OtherUser(PermissionError):
    """The other end belongs neither to our user nor to root. The text says it to us, `answer` to that process."""

    def __init__(self, pid: int, uid: int) -> None:
        self.pid = pid
        own = os.geteuid()
        remedy = (
            ", which stands for all users whom this user namespace does not know; run both as a user of their own"
            if uid == own
            else "; run both as the same user"
        )
        super().__init__(
            f"its process {pid} belongs to user {uid}, this one to user {own}, which lets only that user and root in"
            f"{remedy}"
        )
        self.answer = f"its process belongs to user {own} and lets only that user and root in, not user {uid}{remedy}"


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the other end."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(packed[0:4], sys.byteorder, signed=True), int.from_bytes(packed[4:8], sys.byteorder)


def check_user(connection: socket.socket) -> None:
    """OtherUser unless the other end is a process of our user, or root's."""
    _check(*peer_credentials(connection))


def check_peer(link: _native.Link) -> None:
    """The same of a link; PermissionError when it has ended."""
    peer = link.peer
    if peer is None:
        raise PermissionError("who it was cannot be told any more")
    _check(*peer)


def _check(pid: int, uid: int) -> None:
    if not _native._is_our_user(pid, uid):
        raise OtherUser(pid, uid)
