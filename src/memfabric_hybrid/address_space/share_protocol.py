"""How the processes of one host give each other their memory of one object: Offer, Accept, Withdraw.

Threads: `offer` and `withdraw` in a turn of the pool, where neighbours may be waited for; `answer` on the exchange's,
which waits for nobody. No lock of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from memfabric_hybrid import logs
from memfabric_hybrid.address_space.exchange import Wait
from memfabric_hybrid.address_space.group import Group
from memfabric_hybrid.address_space.messages import (
    Accept,
    Answer,
    Done,
    NotHere,
    Offer,
    Refuse,
    Request,
    SegmentFact,
    Share,
    Withdraw,
)
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.address_space.node import Node
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NoResources, NotConnected, TimedOut, failure_of
from memfabric_hybrid.machine.peer_credentials import OtherUser
from memfabric_hybrid.membership.roster import Stamp

log = logs.get(__name__)


class ShareProtocol:
    def __init__(self, node: Node, spec: PoolSpec, own: OwnMemory, group: Group) -> None:
        self._member = node.member
        self._exchange = node.exchange
        self._spec = spec
        self._own = own
        self._group = group

    def offer(self, deadline: Deadline) -> None:
        """Shows our share to every published neighbour, and maps theirs.

        Raises what the first one that refuses says; TimedOut names those that did not answer though they are alive.
        """
        facts, fds = self._own.shown()
        offer = Offer(self._spec.name, self._share(self._group.own_stamp(), facts), self._member.secret)
        replies = self._exchange.ask(self._group.neighbours(), offer, fds, deadline, self._group.expects)
        refusals: list[Refuse] = []
        late: list[int] = []
        for neighbour, reply in replies.items():
            if reply is None:
                if self._exchange.is_linked(neighbour.instance) and self._group.expects(neighbour):
                    late.append(neighbour.rank)
                continue
            try:
                if isinstance(reply.answer, Accept) and _is_about(reply.answer.share, neighbour):
                    self._admit(neighbour, reply.answer.share, reply.fds)
                elif isinstance(reply.answer, Refuse):
                    refusals.append(reply.answer)
            finally:
                reply.close()
        if refusals:
            raise failure_of(refusals[0].code, refusals[0].sentence)
        if late:
            raise TimedOut(
                f"{self._spec.title}: ranks {late} of this host did not take our memory within "
                f"{deadline.timeout_s:g} s, though they are alive; their Python is busy, or they are stopped: try "
                "again when they go on"
            )

    def _admit(self, neighbour: Neighbour, share: Share, fds: Sequence[int]) -> None:
        # A death we were told of while others answered must stay a death.
        self._group.admit(share, fds, if_still=lambda: self._exchange.is_linked(neighbour.instance))

    def withdraw(self, deadline: Deadline, reason: str, *, even_if_called_off: bool) -> None:
        """Tells neighbours that we leave, and why; returns when they touch our memory no more, or are waited for in
        vain. Nobody is admitted from then on."""
        self._group.stop()
        withdraw = Withdraw(self._spec.name, self._member.rank, *self._group.own_stamp(), reason, self._member.secret)
        acquainted = [one for one in self._group.neighbours() if self._exchange.has_met(one.instance)]
        expected = functools.partial(self._group.expects, even_if_called_off=even_if_called_off)
        try:  # only those: others have nothing of ours
            for reply in self._exchange.ask(acquainted, withdraw, (), deadline, expected).values():
                if reply is not None:
                    reply.close()
        except NoResources as failure:  # an end must not fail; neighbours will hear it from the store
            log.warning("%s: the neighbours did not hear that we leave: %s", self._spec.title, failure)

    def answer(
        self, request: Request, enclosed: Sequence[int], other_user: OtherUser | None = None
    ) -> tuple[Answer, Sequence[int]] | Wait:
        """To a neighbour that offers or withdraws. The descriptors of the answer are the caller's.

        FabricError: it is refused, as one of another user always is.
        """
        if isinstance(request, Offer) and not self._group.takes_part:
            if other_user is not None:  # on whose account we may have left: it would wait for us in vain
                raise self._not_let_in(other_user)
            return NotHere(), ()
        proved = self._group.is_proved(request)
        if proved is False:
            raise NotConnected(f"a process claims to be rank {request.rank} and cannot prove it")
        if other_user is not None:
            return self._refuse(request, other_user, proved is not None)
        if isinstance(request, Withdraw):
            if proved:  # otherwise we never knew it
                self._group.withdrawn(request.rank, Stamp(request.instance, request.generation), request.reason)
            return Done(), ()
        if proved is None:
            return Wait.FOR_THE_STORE
        return self._accept(request.share, enclosed) if self._group.can_admit(request.rank) else Wait.FOR_COPIES

    def _refuse(self, request: Request, other_user: OtherUser, proved: bool) -> Wait:
        """Copies to that rank, and who waits for it, are told the same: so first it has to prove which one it is."""
        if not proved:
            return Wait.FOR_THE_STORE
        self._group.refuse(request.rank, str(other_user))
        raise self._not_let_in(other_user)

    def _not_let_in(self, other_user: OtherUser) -> NotConnected:
        return NotConnected(f"{self._spec.title}: rank {self._member.rank} refuses: {other_user.answer}")

    def _accept(self, theirs: Share, enclosed: Sequence[int]) -> tuple[Answer, Sequence[int]]:
        facts, fds = self._own.duplicates()  # first: who gets no answer has not come
        own_stamp = None
        try:
            own_stamp = self._group.admit(theirs, enclosed, if_still=lambda: self._group.takes_part)
        finally:
            if own_stamp is None:
                for fd in fds:
                    os.close(fd)
        return (NotHere(), ()) if own_stamp is None else (Accept(self._share(own_stamp, facts)), fds)

    def _share(self, stamp: Stamp, facts: tuple[SegmentFact, ...]) -> Share:
        layout = self._spec.layout
        return Share(
            self._member.rank, *stamp, os.getpid(), layout.max_dram, layout.max_hbm,
            self._spec.tag, self._spec.op_type, facts,
        )  # fmt: skip


def _is_about(share: Share, neighbour: Neighbour) -> bool:
    """Who answers speaks for itself and for nobody else."""
    if (share.rank, share.instance) == (neighbour.rank, neighbour.instance):
        return True
    log.warning("rank %d answered with a share of rank %d, which is ignored", neighbour.rank, share.rank)
    return False
