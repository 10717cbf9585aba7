"""A descriptor in reserve: a process that has no other left lets one neighbour in, which gets an answer that says so.

Threads: the exchange's only.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from memfabric_hybrid import file_descriptors


class SpareDescriptor:
    """`open_fd` stays open for as long as this does; what it is does not matter."""

    def __init__(self, open_fd: int) -> None:
        self._open_fd = open_fd
        self._fd = _open()  # -1: it had to make way for a connection

    @property
    def is_missing(self) -> bool:
        return self._fd < 0

    def give_way_to(self, make: Callable[[], socket.socket]) -> socket.socket:
        """What `make` returns; if it needs one descriptor more than there are, ours is given up."""
        try:
            return make()
        except OSError as error:
            if error.errno != errno.EMFILE or self.is_missing:
                raise
            self.close()
            return make()

    def restore(self) -> None:
        """OSError while there is none to be had."""
        if self.is_missing:
            self._fd = _open()

    def close_connection(self, sock: socket.socket) -> None:
        """Its number becomes ours, if that is missing, before anybody else in this process can get it."""
        if not self.is_missing:
            sock.close()
            return
        number = sock.detach()
        try:
            self._fd = os.dup2(self._open_fd, number, inheritable=False)
        except OSError:  # the limit has become lower than the number
            os.close(number)

    def close(self) -> None:
        if not self.is_missing:
            os.close(self._fd)
            self._fd = -1


def _open() -> int:
    return file_descriptors.own(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
