"""Asks neighbours, and waits for their answers.

Threads: whoever asks does so on its own thread, one at a time: `_turn` is held for as long as that takes, and no link
is closed meanwhile. Under it `expected` may take the locks of pools; nobody who holds one of these may ask.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum

import msgspec

from memfabric_hybrid import logs, signal_handlers
from memfabric_hybrid.address_space.exchange import descriptor_shortage, packets
from memfabric_hybrid.address_space.exchange.links import Link, Links
from memfabric_hybrid.address_space.messages import MAX_PACKET, Answer, Nonsense, Request, decode_answer, encode
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import resource_failure

log = logs.get(__name__)
PATIENCE_S = 0.1  # how often a waiting `ask` looks whether the one it waits for is still expected


class Reply(msgspec.Struct, frozen=True):
    """A neighbour's answer. Owns its descriptors: whoever gets it calls `close()`."""

    answer: Answer
    fds: tuple[int, ...]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class _NoReply(Enum):
    STALE = "the answer to an earlier request, which was abandoned"
    LOST = "the neighbour is gone, or talks nonsense"


class Asker:
    """Made with the links that it asks through, which are the exchange's."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._turn = threading.Lock()
        self._asked = 0
        self._stopping = False

    def ask(
        self,
        neighbours: Sequence[Neighbour],
        request: Request,
        fds: Sequence[int],
        deadline: Deadline,
        expected: Callable[[Neighbour], bool],
    ) -> Mapping[Neighbour, Reply | None]:
        """As `Exchange.ask`."""
        replies: dict[Neighbour, Reply | None] = dict.fromkeys(neighbours)
        if not neighbours:
            return replies
        if not self._turn.acquire(timeout=deadline.remaining_s()):
            log.warning("neighbours were not asked within %g s: another call waits for them", deadline.timeout_s)
            return replies
        try:
            if not self._stopping:
                self._asked += 1
                packet = packets.NUMBER.pack(self._asked) + encode(request)
                asked = {one: link for one in neighbours if (link := self._send(one, packet, fds, deadline))}
                self._collect(replies, asked, deadline, expected)
        finally:
            self._turn.release()
        return replies

    def _send(self, neighbour: Neighbour, packet: bytes, fds: Sequence[int], deadline: Deadline) -> Link | None:
        link = self._links.to(neighbour, deadline)
        if link is None:
            return None
        try:
            link.sock.settimeout(deadline.remaining_s() or 0.001)
            packets.send(link.sock, packet, fds)
        except TimeoutError as error:
            signal_handlers.pass_on(error)
            log.warning("rank %d of this host reads nothing, and its queue is full; it was not asked", neighbour.rank)
            return None
        except OSError as error:
            signal_handlers.pass_on(error)
            if error.errno == errno.ETOOMANYREFS:  # no fault of the link, whose end would be taken for a death
                raise resource_failure(f"rank {neighbour.rank} of this host cannot be shown memory", error) from error
            log.info("rank %d cannot be reached on this host: %s", neighbour.rank, error)
            self._links.end(link)
            return None
        return link

    def _collect(
        self,
        replies: dict[Neighbour, Reply | None],
        asked: Mapping[Neighbour, Link],
        deadline: Deadline,
        expected: Callable[[Neighbour], bool],
    ) -> None:
        waiting = {link.sock.fileno(): (neighbour, link) for neighbour, link in asked.items()}
        poll = select.poll()
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        while waiting and not deadline.expired and not self._stopping:
            settled = []
            for fd, _ in poll.poll(min(deadline.remaining_s(), PATIENCE_S) * 1000):
                neighbour, link = waiting[fd]
                outcome = self._receive(link)
                if isinstance(outcome, Reply):
                    replies[neighbour] = outcome
                    if descriptor_shortage.explains(outcome.answer):
                        self._links.hang_up_if_new(link)
                    link.is_new = False
                elif outcome is _NoReply.LOST:
                    self._links.end(link)
                else:
                    continue
                settled.append(fd)
            settled += [fd for fd, (one, _) in waiting.items() if fd not in settled and not expected(one)]
            for fd in settled:
                poll.unregister(fd)
                del waiting[fd]

    def _receive(self, link: Link) -> Reply | _NoReply:
        try:
            packet = packets.receive(link.sock, MAX_PACKET)
        except OSError as error:
            signal_handlers.pass_on(error)
            return _NoReply.LOST
        content, reply = packet.content, None
        try:
            if len(content) > packets.NUMBER.size and packets.NUMBER.unpack_from(content)[0] == self._asked:
                answer = decode_answer(content[packets.NUMBER.size :])
                answer = descriptor_shortage.refusal("this process") if packet.fds_lost else answer
                reply = Reply(answer, tuple(packet.fds))
                return reply
            return _NoReply.STALE if content else _NoReply.LOST
        except Nonsense as error:
            log.warning("a neighbour sent an answer that cannot be read: %s", error)
            return _NoReply.LOST
        finally:
            if reply is None:
                packet.close()

    def bury(self) -> None:
        """Closes links that broke, if nobody is asking (the exchange's thread, between two rounds of events)."""
        if self._links.has_broken and self._turn.acquire(blocking=False):
            self._links.close_broken()
            self._turn.release()

    def stop(self) -> None:
        """Whoever asks ends soon, whoever comes later at once."""
        self._stopping = True

    @contextmanager
    def stopped(self, deadline: Deadline) -> Iterator[bool]:
        """Whether nobody asks while the block runs. Askers look every now and then: a late one is given that time."""
        unused = self._turn.acquire(timeout=max(2 * PATIENCE_S, deadline.remaining_s()))
        try:
            yield unused
        finally:
            if unused:
                self._turn.release()
