"""The exchange of descriptors between the processes of one host, and the quickest news of a death.

Every process listens at a name of its own and keeps a link to each neighbour it has asked something. The kernel closes
a dead process's sockets, so a broken link *is* the death notice: no store, no time-out needed.

Threads: `ask` runs on the caller's thread, one at a time; everything that comes in is handled on the exchange's own
thread, which never waits for a peer. `request_tick` may be called from any thread.
Locks, outermost first: the asker's turn; those of the pools, which `expected` and `on_lost` may take; those of links,
of connections and of the wake-up, for moments, and never two of them.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence

from memfabric_hybrid import file_descriptors, logs
from memfabric_hybrid.address_space.exchange.acceptor import Acceptor
from memfabric_hybrid.address_space.exchange.answerer import Answerer, Handler
from memfabric_hybrid.address_space.exchange.asker import PATIENCE_S, Asker, Reply
from memfabric_hybrid.address_space.exchange.links import Links
from memfabric_hybrid.address_space.exchange.spare_descriptor import SpareDescriptor
from memfabric_hybrid.address_space.messages import Request
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.service_thread import ServiceThread

log = logs.get(__name__)
TICK_S = 0.2


class Exchange:
    """Made with the listening socket, which it owns from then on."""

    def __init__(
        self,
        listener: socket.socket,
        handle: Handler,
        on_lost: Callable[[int], None],
        on_tick: Callable[[], bool],
        on_failure: Callable[[str], None],
    ) -> None:
        self._on_tick = on_tick  # returns whether it wants to be called again
        self._on_failure = on_failure  # nobody answers neighbours or sees their deaths any more
        self._wake_lock = threading.Lock()  # guards `_closed`: until then the wake-up's number is ours
        self._closing = False
        self._closed = False
        self._ticking = False
        self._wake_fd = file_descriptors.own(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._epoll = _open_epoll()
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._spare = SpareDescriptor(self._wake_fd)
        self._links = Links(self._epoll, on_lost)
        self._asker = Asker(self._links)
        self._acceptor = Acceptor(listener, self._epoll, self._spare)
        self._answerer = Answerer(handle, on_lost, self._epoll, self._spare)
        self._thread = ServiceThread("memfabric-exchange", self._run, self._fail)
        try:
            self._thread.start()
        except BaseException:
            self.abandon_after_fork()
            raise

    # ---- any thread ------------------------------------------------------------------------------------------------

    def ask(
        self,
        neighbours: Sequence[Neighbour],
        request: Request,
        fds: Sequence[int],
        deadline: Deadline,
        expected: Callable[[Neighbour], bool],
    ) -> Mapping[Neighbour, Reply | None]:
        """Sends the request to all, then collects the answers.

        None stands for a neighbour that is dead, is not `expected` any more, or did not answer by the deadline.
        NoResources when this process cannot ask.
        """
        replies = self._asker.ask(neighbours, request, fds, deadline, expected)
        if self._links.has_broken:
            self.request_tick()
        return replies

    def is_linked(self, instance: int) -> bool:
        """Whether our link to that process is whole; once it is not, `on_lost` has been or will be called."""
        return self._links.is_whole(instance)

    def has_met(self, instance: int) -> bool:
        """Whether that process has asked us or we have asked it, in whichever direction a connection is left."""
        return self._links.is_whole(instance) or self._answerer.has_met(instance)

    @property
    def awaits_news(self) -> bool:
        """Whether somebody waits for us to learn what the store will say about it."""
        return self._answerer.awaits_news

    def request_tick(self) -> None:
        """Call `on_tick` soon, and again for as long as it wants."""
        with self._wake_lock:
            if not self._closed:  # its number may be another descriptor's by now
                os.eventfd_write(self._wake_fd, 1)

    # ---- the exchange's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            for fd, events in self._epoll.poll(TICK_S if self._ticking else None):
                self._handle(fd, events)
            if self._answerer.awaits_news or self._acceptor.is_short:
                self._ticking = True
            if self._ticking and not self._closing:
                wanted = [self._on_tick(), self._answerer.look_again(), self._acceptor.let_in_again()]
                self._ticking = any(wanted)
            self._asker.bury()

    def _handle(self, fd: int, events: int) -> None:
        if fd == self._wake_fd:
            os.eventfd_read(fd)
            self._ticking = True
        elif fd == self._acceptor.fileno():
            sock = self._acceptor.accept()
            if sock is not None:
                self._answerer.add(sock)
        elif not self._answerer.serve(fd, events):
            self._links.end_at(fd)

    def _fail(self, reason: str) -> None:
        """The thread is over. Neighbours see us hang up instead of waiting for answers in vain."""
        self._closing = True
        self._asker.stop()
        self._links.hang_up_all()
        self._answerer.hang_up_all()
        self._acceptor.close()
        self._on_failure(reason)

    # ---- ending ----------------------------------------------------------------------------------------------------

    def close(self, deadline: Deadline) -> None:
        """Everybody sees our end. Not to be called on the exchange's own thread."""
        self._closing = True
        self._asker.stop()
        self.request_tick()
        ended = self._thread.join(Deadline(max(2 * PATIENCE_S, deadline.remaining_s())))  # which never waits
        with self._asker.stopped(deadline) as unused:
            if ended and unused:
                with self._wake_lock:
                    self._closed = True
                self.abandon_after_fork()
            else:
                log.error("the exchange with the neighbours is still busy; its sockets stay until the process ends")

    def abandon_after_fork(self) -> None:
        """In a forked child, where the thread does not exist: let go of the parent's sockets."""
        self._closing = self._closed = True
        self._answerer.close()
        self._links.close()
        self._acceptor.close()
        self._epoll.close()
        os.close(self._wake_fd)
        self._spare.close()


def _open_epoll() -> select.epoll:
    made = select.epoll()
    if made.fileno() >= file_descriptors.LOWEST_OWN:
        return made
    with made:
        return select.epoll.fromfd(file_descriptors.duplicate(made.fileno()))
