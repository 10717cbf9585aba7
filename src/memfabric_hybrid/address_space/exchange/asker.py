"""Asks neighbours, and waits for their answers.

Threads: whoever asks does so on its own thread, one at a time: `_turn` is held for as long as that takes. Under it
`expected` may take the locks of pools; nobody who holds one of these may ask. Answers arrive on the exchange's thread.
`_changed` guards the open question; it is held for moments, and nothing else is locked or called under it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from memfabric_hybrid import _native, logs
from memfabric_hybrid._native import Link, Sending
from memfabric_hybrid.address_space.exchange import descriptor_shortage
from memfabric_hybrid.address_space.exchange.links import Links
from memfabric_hybrid.address_space.exchange.packet import NUMBER, Packet
from memfabric_hybrid.address_space.messages import Answer, Nonsense, Refuse, Request, decode_answer, encode
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code, NoResources
from memfabric_hybrid.machine.peer_credentials import OtherUser
from memfabric_hybrid.waiting_log import WaitingLog

log = logs.get(__name__)
LOOK_S = 0.1  # how often a waiting `ask` looks whether the one it waits for is still expected


class Reply(msgspec.Struct, frozen=True):
    """A neighbour's answer. Owns its descriptors: whoever gets it calls `close()`."""

    answer: Answer
    fds: tuple[int, ...]

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class _Question:
    """Guarded by the asker's `_changed`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: dict[Link, Neighbour] = {}
        self.replies: dict[Neighbour, Reply] = {}


class Asker:
    """Made with the links that it asks through, which are the exchange's."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._turn = threading.Lock()
        self._asked = 0
        self._changed = threading.Condition()
        self._question: _Question | None = None
        self._stopping = False

    # ---- any thread ------------------------------------------------------------------------------------------------

    def ask(
        self,
        neighbours: Sequence[Neighbour],
        request: Request,
        fds: Sequence[int],
        deadline: Deadline,
        expected: Callable[[Neighbour], bool],
    ) -> Mapping[Neighbour, Reply | None]:
        """As `Exchange.ask`."""
        nobody: dict[Neighbour, Reply | None] = dict.fromkeys(neighbours)
        if not neighbours:
            return nobody
        waiting = WaitingLog(log, deadline.timeout_s)
        while not self._turn.acquire(timeout=min(deadline.remaining_s(), waiting.due_in_s())):
            if deadline.expired:
                log.warning("neighbours were not asked within %g s: another call waits for them", deadline.timeout_s)
                return nobody
            waiting.tell("another call of this process waits for the ranks of this host")
        try:
            self._asked += 1
            question = _Question(self._asked)
            try:
                with self._changed:
                    self._question = question
                packet = NUMBER.pack(question.number) + encode(request)
                for neighbour in neighbours:
                    self._send(question, neighbour, packet, fds, deadline)
                self._wait(question, deadline, expected, waiting)
            except BaseException:
                self._close(question)
                raise
            with self._changed:
                self._question = None  # whatever else comes is late
            return nobody | question.replies
        finally:
            self._turn.release()

    def _send(
        self, question: _Question, neighbour: Neighbour, packet: bytes, fds: Sequence[int], deadline: Deadline
    ) -> None:
        try:
            link = None if self._stopping else self._links.to(neighbour)
        except OtherUser as stranger:
            refusal = Refuse(int(Code.NOT_CONNECTED), f"rank {neighbour.rank} of this host cannot be asked: {stranger}")
            with self._changed:
                question.replies[neighbour] = Reply(refusal, ())
            return
        if link is None:
            return
        with self._changed:  # first: the answer, or the end, may be quick
            question.waiting[link] = neighbour
        sent = link.send(packet, fds, deadline.remaining_s())
        if sent is Sending.SENT:
            return
        self._give_up(question, link)
        if sent is Sending.CROWDED:  # no fault of the link, whose end would be taken for a death
            raise NoResources(
                f"rank {neighbour.rank} of this host cannot be shown memory: too many descriptors of this user are on "
                "their way between processes; raise the limit of open files (ulimit -n)"
            )
        if sent is Sending.FULL:
            log.warning("rank %d of this host reads nothing, and its queue is full; it was not asked", neighbour.rank)
        else:
            self._links.end(link)

    def _wait(
        self, question: _Question, deadline: Deadline, expected: Callable[[Neighbour], bool], waiting: WaitingLog
    ) -> None:
        while not deadline.expired:
            with self._changed:
                look_s = min(deadline.remaining_s(), LOOK_S)
                if self._changed.wait_for(lambda: not question.waiting or self._stopping, look_s):
                    return
                asked = list(question.waiting.items())
            for link, neighbour in asked:
                if not expected(neighbour):
                    self._give_up(question, link)
            waiting.tell(f"ranks of this host that have not answered: {', '.join(str(each.rank) for _, each in asked)}")

    def _give_up(self, question: _Question, link: Link) -> None:
        with self._changed:
            question.waiting.pop(link, None)

    def _close(self, question: _Question) -> None:
        with self._changed:
            self._question = None
            replies, question.replies = question.replies, {}
        for reply in replies.values():
            reply.close()

    def stop(self) -> None:
        """Whoever asks ends soon, whoever comes later at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    # ---- the exchange's thread -------------------------------------------------------------------------------------

    def hear(self, link: Link, packet: Packet) -> bool:
        """Takes what arrived on one of our links; False when the link is over: the neighbour is gone, or talks
        nonsense."""
        if not packet.content:
            return False
        number = NUMBER.unpack_from(packet.content)[0] if len(packet.content) > NUMBER.size else 0
        question = self._question
        if question is None or number != question.number:  # the answer to an earlier one, which was abandoned
            packet.close()
            return True
        try:
            answer = decode_answer(packet.content[NUMBER.size :])
        except Nonsense as error:
            log.warning("a neighbour sent an answer that cannot be read: %s", error)
            packet.close()
            return False
        if packet.fds_lost:
            answer = descriptor_shortage.refusal("this process")
        if descriptor_shortage.explains(answer):
            self._links.end_if_untried(link)
        else:
            self._links.prove(link)
        reply = Reply(answer, tuple(packet.fds))
        if not self._settle(question, link, reply):
            reply.close()
        _native._pause_point("exchange.answered")
        return True

    def lose(self, link: Link) -> None:
        """That link is over."""
        question = self._question
        if question is not None:
            self._settle(question, link, None)

    def _settle(self, question: _Question, link: Link, reply: Reply | None) -> bool:
        """False: nobody waits for it any more."""
        with self._changed:
            neighbour = question.waiting.pop(link, None) if question is self._question else None
            if neighbour is None:
                return False
            if reply is not None:
                question.replies[neighbour] = reply
            if not question.waiting:
                self._changed.notify_all()
            return True
