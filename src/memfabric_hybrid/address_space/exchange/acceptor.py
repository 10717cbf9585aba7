"""Lets neighbours in: processes of our user, or root's, as long as there are descriptors for them.

Threads: the exchange's only.
"""

from __future__ import annotations

import errno
import resource
import select
import socket

from memfabric_hybrid import logs
from memfabric_hybrid.address_space.exchange.spare_descriptor import SpareDescriptor
from memfabric_hybrid.file_descriptors import above_standard_streams
from memfabric_hybrid.peer_credentials import check_user

log = logs.get(__name__)


class Acceptor:
    """Owns the listening socket."""

    def __init__(self, listener: socket.socket, epoll: select.epoll, spare: SpareDescriptor) -> None:
        self._listener = listener
        self._epoll = epoll
        self._spare = spare
        self._paused = False  # nobody is let in, for want of descriptors
        epoll.register(listener.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> socket.socket | None:
        """The connection of somebody whom we hear; None: nobody has come who may, or can, be let in."""
        try:
            sock = self._accepted()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._pause(error)
            return None  # otherwise whoever connected is gone already
        try:
            check_user(sock)
        except OSError as error:
            log.warning("refused a process that connected: %s", error)
            sock.close()
            return None
        return sock

    def _accepted(self) -> socket.socket:
        sock = self._spare.give_way_to(lambda: self._listener.accept()[0])
        try:
            return self._spare.give_way_to(lambda: above_standard_streams(sock))
        except OSError:
            sock.close()
            raise

    def _pause(self, error: OSError) -> None:
        log.warning(
            "no neighbour is let in: %s; raise the limit of open files (ulimit -n, now %d)",
            error.strerror,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
        self._epoll.modify(self._listener.fileno(), 0)
        self._paused = True

    @property
    def is_short(self) -> bool:
        """Descriptors are missing, and `let_in_again` has to be called now and then."""
        return self._paused or self._spare.is_missing

    def let_in_again(self) -> bool:
        """True while descriptors are short."""
        try:
            self._spare.restore()
        except OSError:
            return True
        if self._paused:
            self._paused = False
            self._epoll.modify(self._listener.fileno(), select.EPOLLIN)
        return False

    def close(self) -> None:
        self._listener.close()
