"""The exchange of descriptors between the processes of one host, and the quickest news of a death.

Every process listens at a name of its own and keeps a link to each neighbour it has asked something. The kernel closes
a dead process's sockets, so a broken link *is* the death notice: no store, no time-out needed.

Threads: `ask` runs on the caller's thread, one at a time; everything that comes in is received on the exchange's own
thread, which never waits for a peer. `request_tick` may be called from any thread.
Locks, outermost first: the asker's turn; those of the pools, which `expected` and `on_lost` may take; those of the open
question, of links and of connections, for moments, and never two of them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence

from memfabric_hybrid import logs
from memfabric_hybrid._native import Endpoint, Link
from memfabric_hybrid.address_space.exchange import packet as packets
from memfabric_hybrid.address_space.exchange.answerer import Answerer, Handler
from memfabric_hybrid.address_space.exchange.asker import LOOK_S, Asker, Reply
from memfabric_hybrid.address_space.exchange.links import Links
from memfabric_hybrid.address_space.messages import Request
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.machine.peer_credentials import OtherUser
from memfabric_hybrid.machine.service_thread import ServiceThread

log = logs.get(__name__)
TICK_S = 0.2
SOON_S = 0.02  # between looks at what somebody waits for


class Exchange:
    """Made with the listening socket, which it owns from then on."""

    def __init__(
        self,
        listener: socket.socket,
        handle: Handler,
        on_lost: Callable[[int], None],
        on_tick: Callable[[], bool],
        on_failure: Callable[[str], None],
        on_other_user: Callable[[OtherUser], None] = lambda stranger: None,
    ) -> None:
        self._on_tick = on_tick  # returns whether it wants to be called again
        self._on_failure = on_failure  # nobody answers neighbours or sees their deaths any more
        self._closing = False
        self._ticking = False
        self._endpoint = Endpoint.open(listener.detach())
        self._links = Links(self._endpoint, on_lost)
        self._asker = Asker(self._links)
        self._answerer = Answerer(handle, on_lost, on_other_user, self._endpoint)
        self._thread = ServiceThread("memfabric-exchange", self._run, self._fail)
        try:
            self._thread.start()
        except BaseException:
            self._endpoint.close()
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
        return self._asker.ask(neighbours, request, fds, deadline, expected)

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
        self._endpoint.wake()

    # ---- the exchange's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            pause_s = SOON_S if self._answerer.awaits_news else TICK_S
            links, woken = self._endpoint.wait(pause_s if self._ticking else None)
            for link in links:
                self._hear(link)
            if woken or self._answerer.awaits_news:
                self._ticking = True
            if self._ticking and not self._closing:
                wanted = [self._on_tick(), self._answerer.look_again()]
                self._ticking = any(wanted)

    def _hear(self, link: Link) -> None:
        is_ours = link in self._links
        if not is_ours:
            self._answerer.admit(link)
        packet = packets.receive(link)
        if packet is None:
            return
        if not is_ours:
            self._answerer.hear(link, packet)
        elif not self._asker.hear(link, packet):
            self._links.end(link)
            self._asker.lose(link)

    def _fail(self, reason: str) -> None:
        """The thread is over. Neighbours see us hang up instead of waiting for answers in vain."""
        self._closing = True
        self._asker.stop()
        self._endpoint.close()
        self._on_failure(reason)

    # ---- ending ----------------------------------------------------------------------------------------------------

    def close(self, deadline: Deadline) -> None:
        """Everybody sees our end. Not to be called on the exchange's own thread."""
        self._closing = True
        self._asker.stop()
        self._endpoint.wake()
        if self._thread.join(Deadline(max(2 * LOOK_S, deadline.remaining_s()))):  # which never waits
            self.abandon_after_fork()
        else:
            log.error("the exchange with the neighbours is still busy; its sockets stay until the process ends")

    def abandon_after_fork(self) -> None:
        """In a forked child, where the thread does not exist: let go of the parent's sockets."""
        self._closing = True
        self._answerer.close()
        self._endpoint.close()
