"""Who takes part in one object, as this process knows it: here, elsewhere, and gone with the reason."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Sequence

import msgspec

from memfabric_hybrid import settings
from memfabric_hybrid.address_space.exchange import Neighbour
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NotConnected, TimedOut
from memfabric_hybrid.membership.member import Member
from memfabric_hybrid.membership.roster import Effect, Joined, Left, Roster, Stamp


class JoinFact(msgspec.Struct, frozen=True, array_like=True):
    """What a rank publishes about its part in an object; its neighbours get the rest through the exchange."""

    instance: int
    generation: int
    host: str
    pid: int
    dram_bytes: int
    hbm_bytes: int
    exchange_name: str  # where its exchange listens: a name that nobody can guess
    secret: bytes  # whoever knows it is that process

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.instance, self.generation)


class Participants:
    """Everything here happens under the lock that is given; `wait_for_all` lets go of it while it waits."""

    def __init__(self, member: Member, capacity: int, lock: threading.Lock) -> None:
        self.roster = Roster(member.rank, settings.heartbeat_timeout_s())
        self.facts: dict[int, JoinFact] = {}  # what the store shows, ours too
        self.generation = 0  # of our own participation
        self.takes_part = False  # ourselves: neighbours' offers are accepted
        self.called_off: FabricError | None = None  # what a call that waits for others has to raise instead
        self._member = member
        self._capacity = capacity
        self._secrets: dict[int, bytes] = {}  # of processes that have proved who they are, by instance
        self._gone: dict[int, str] = {}  # who was here and is not any more, and why
        self._changed = threading.Condition(lock)  # somebody came or went

    @property
    def own_stamp(self) -> Stamp:
        return Stamp(self._member.instance, self.generation)

    def view(self) -> tuple[int, list[int]]:
        """(epoch, present ranks)."""
        own = [self._member.rank] if self.takes_part else []
        return self.roster.epoch, sorted({*self.roster.present, *own})

    def stamps(self) -> dict[int, Stamp]:
        """Everybody, in order of rank, each with the number of its participation."""
        return dict(sorted({**self.roster.present, self._member.rank: self.own_stamp}.items()))

    def hosts(self) -> list[list[int]]:
        """The ranks host by host; each host's in order, the hosts in order of their lowest rank."""
        hosts: dict[str, list[int]] = {}
        for rank in sorted({*self.roster.present, self._member.rank}):
            fact = self.facts.get(rank)  # the store may not have shown us yet who showed itself
            hosts.setdefault(fact.host if fact is not None else self._member.host, []).append(rank)
        return list(hosts.values())

    def neighbours(self) -> list[Neighbour]:
        """The others of this host, as far as the store shows them."""
        return [
            Neighbour(rank, fact.instance, fact.exchange_name)
            for rank, fact in self.facts.items()
            if rank != self._member.rank and fact.host == self._member.host
        ]

    def distant(self) -> dict[int, JoinFact]:
        """The ranks of other hosts."""
        return {rank: fact for rank, fact in self.facts.items() if fact.host != self._member.host}

    def shows(self, neighbour: Neighbour) -> bool:
        """Does the store still show this very process under its rank?"""
        fact = self.facts.get(neighbour.rank)
        return fact is not None and fact.instance == neighbour.instance

    def is_proved(self, rank: int, instance: int, secret: bytes) -> bool | None:
        """Whether whoever knows that secret is that process of that rank; None while the store has not said."""
        fact = self.facts.get(rank)
        known = fact.secret if fact is not None and fact.instance == instance else self._secrets.get(instance)
        if rank == self._member.rank:
            return False
        if known is None:
            return None
        proved = hmac.compare_digest(known, secret)
        if proved:
            self._secrets[instance] = known  # the store may forget it before we do
        return proved

    def forget_process(self, instance: int) -> None:
        self._secrets.pop(instance, None)

    def gone(self) -> dict[int, str]:
        return dict(self._gone)

    def note(self, effects: Sequence[Effect]) -> None:
        """Remembers who came and went, and wakes whoever waits for somebody."""
        for effect in effects:
            if isinstance(effect, Left):
                self._gone[effect.rank] = farewell(effect)
            elif isinstance(effect, Joined):
                self._gone.pop(effect.rank, None)
        if effects:
            self._changed.notify_all()

    def miss(self, rank: int, reason: str) -> None:
        """Whoever waits for that rank waits in vain."""
        self._gone.setdefault(rank, farewell(Left(rank, reason)))
        self._changed.notify_all()

    def call_off(self, failure: FabricError) -> None:
        """Calls of ours that wait for others end now, with that failure."""
        self.called_off = failure
        self._changed.notify_all()

    def check_wanted(self) -> None:
        if self.called_off is not None:
            raise self.called_off

    def wait_for_all(self, deadline: Deadline) -> None:
        """TimedOut names who did not come; NotConnected, at once, who came and is gone again."""
        self.check_wanted()
        while missing := set(range(self._capacity)) - {*self.roster.present, self._member.rank}:
            for reason in self._gone.values():
                raise NotConnected(reason)
            if deadline.expired:
                ranks = ", ".join(map(str, sorted(missing)))
                raise TimedOut(
                    f"{len(missing)} of {self._capacity} ranks did not come within {deadline.timeout_s:g} s: {ranks}"
                )
            self._changed.wait(deadline.remaining_s())
            self.check_wanted()

    def wait_for_store(self, deadline: Deadline) -> str:
        """The life of the store in which everybody who takes part is registered. TimedOut names who is not."""
        while (incarnation := self.roster.shown_by) is None:
            if deadline.expired:
                raise TimedOut(
                    f"the store was restarted, and ranks {self.roster.unheard} have not registered there again within "
                    f"{deadline.timeout_s:g} s"
                )
            self._changed.wait(deadline.remaining_s())
        return incarnation

    def tell_waiters(self) -> None:
        """Something was learnt that waiting threads may have waited for."""
        self._changed.notify_all()

    def forget(self) -> None:
        """We do not take part any more: nobody is missed."""
        self._secrets.clear()
        self.facts.clear()
        self._gone.clear()


def farewell(left: Left) -> str:
    return f"rank {left.rank} is gone: {left.reason}"
