"""Our links: a socket to each neighbour that we have asked something, kept for the news of its end.

The kernel closes a dead process's sockets, so a broken link *is* the death notice: no store, no time-out needed.

Threads: any. `_lock` guards the tables; it is held for moments, and nothing else is locked or called under it. Sockets
are closed by `close_broken` and `close` only: under an asker, or in a round of events, a number that is used again at
once would be taken for the old link.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from memfabric_hybrid import logs, signal_handlers
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import resource_failure
from memfabric_hybrid.file_descriptors import open_socket
from memfabric_hybrid.peer_credentials import check_user

log = logs.get(__name__)


class Link(msgspec.Struct, eq=False):
    sock: socket.socket
    instance: int  # of the other side
    is_new: bool = True  # nothing was ever agreed on it


class Links:
    """`on_lost(instance)` is called once for each link that breaks, on the thread that sees it first."""

    def __init__(self, epoll: select.epoll, on_lost: Callable[[int], None]) -> None:
        self._epoll = epoll
        self._on_lost = on_lost
        self._lock = threading.Lock()  # guards everything below
        self._by_fd: dict[int, Link] = {}
        self._by_instance: dict[int, Link] = {}
        self._broken: list[Link] = []  # their end is known, their sockets are still to be closed

    def to(self, neighbour: Neighbour, deadline: Deadline) -> Link | None:
        """The link to it, made now if there is none; None when it cannot be reached. One asker at a time."""
        return self._by_instance.get(neighbour.instance) or self._connect(neighbour, deadline)

    def _connect(self, neighbour: Neighbour, deadline: Deadline) -> Link | None:
        try:
            sock = open_socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        except OSError as error:
            raise resource_failure(f"rank {neighbour.rank} of this host cannot be asked", error) from error
        try:
            sock.settimeout(deadline.remaining_s() or 0.001)
            sock.connect("\0" + neighbour.exchange_name)
            check_user(sock)
        except OSError as error:
            sock.close()
            signal_handlers.pass_on(error)
            log.info("rank %d cannot be reached on this host: %s", neighbour.rank, error)
            return None
        link = Link(sock, neighbour.instance)
        with self._lock:
            self._by_fd[sock.fileno()] = link
            self._by_instance[link.instance] = link
        self._epoll.register(sock.fileno(), select.EPOLLRDHUP)  # hang-up only: answers are read by the asker
        return link

    def is_whole(self, instance: int) -> bool:
        """Whether there is a link to that process; once it breaks, `on_lost` has been or will be called."""
        with self._lock:
            return instance in self._by_instance

    def end(self, link: Link) -> None:
        """The other side is gone (or talks nonsense). The asker or the exchange's thread; whoever is first tells."""
        with self._lock:
            if not self._forget(link):
                return
        self._on_lost(link.instance)

    def end_at(self, fd: int) -> None:
        """The other side of that socket has hung up. Numbers of others are ignored."""
        with self._lock:
            link = self._by_fd.get(fd)
        if link is not None:
            self.end(link)

    def hang_up_if_new(self, link: Link) -> None:
        """The neighbour is short of descriptors, and this one has brought nothing. Nobody takes its end for a death:
        the other side does not know who we are."""
        with self._lock:
            if link.is_new and self._forget(link):
                _hang_up(link)

    def _forget(self, link: Link) -> bool:
        """Under the lock. False: somebody else has done it."""
        fd = link.sock.fileno()
        if self._by_fd.pop(fd, None) is None:
            return False
        self._epoll.unregister(fd)
        self._by_instance.pop(link.instance, None)
        self._broken.append(link)
        return True

    @property
    def has_broken(self) -> bool:
        """Whether `close_broken` has something to do."""
        return bool(self._broken)

    def close_broken(self) -> None:
        """Between two rounds of events, and under no asker."""
        while self._broken:
            self._broken.pop().sock.close()

    def hang_up_all(self) -> None:
        """Neighbours see our end; the sockets stay open."""
        with self._lock:
            for link in self._by_fd.values():
                _hang_up(link)

    def close(self) -> None:
        """When nobody else uses them; without the lock: in a forked child its holder may not exist."""
        self.close_broken()
        for link in self._by_fd.values():
            link.sock.close()
        self._by_fd.clear()
        self._by_instance.clear()


def _hang_up(link: Link) -> None:
    with suppress(OSError):  # the other side was faster
        link.sock.shutdown(socket.SHUT_RDWR)
