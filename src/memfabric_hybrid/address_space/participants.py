"""Who takes part in one object, as this process knows it: here, elsewhere, and gone with the reason.

Two sources tell: the store shows everybody's facts, neighbours show themselves. The roster says whose word counts; here
stands what follows from it. Pure: no sockets, no threads, no clock. One owner (the group) calls it under its lock and
carries out the effects, in their order.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

import msgspec

from memfabric_hybrid.address_space.join_fact import JoinFact, host_key
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.membership.roster import Effect, Joined, Left, Returned, Roster, Stamp

MOST_OTHER_USERS = 64  # who have connected, and whose ranks the store has not shown
UNPUBLISHED = "it left, or did not answer the store within its heartbeat time-out"


class Participants(msgspec.Struct):
    own_rank: int
    own_instance: int
    own_host: str
    capacity: int
    roster: Roster
    generation: int = 0  # of our own participation
    takes_part: bool = False  # ourselves: neighbours' offers are accepted
    facts: dict[int, JoinFact] = msgspec.field(default_factory=dict)  # what the store shows, ours too
    gone: dict[int, str] = msgspec.field(default_factory=dict)  # who was here and is not any more, and why
    _shown_at: dict[int, tuple[Stamp, str]] = msgspec.field(default_factory=dict)  # participation last shown, its host
    _pids: dict[int, int] = msgspec.field(default_factory=dict)  # who has, or had last, a rank of this host
    _other_users: dict[int, str] = msgspec.field(default_factory=dict)  # by process id: why they are not let in
    _secrets: dict[int, bytes] = msgspec.field(default_factory=dict)  # of who has proved itself, by instance

    # ---- what is known ---------------------------------------------------------------------------------------------

    @property
    def own_stamp(self) -> Stamp:
        return Stamp(self.own_instance, self.generation)

    def view(self) -> tuple[int, list[int]]:
        """(epoch, present ranks)."""
        own = [self.own_rank] if self.takes_part else []
        return self.roster.epoch, sorted({*self.roster.present, *own})

    def stamps(self) -> dict[int, Stamp]:
        """Everybody, in order of rank, each with the number of its participation."""
        return dict(sorted({**self.roster.present, self.own_rank: self.own_stamp}.items()))

    def hosts(self) -> list[list[int]]:
        """The ranks host by host; each host's in order, the hosts in order of their lowest rank."""
        hosts: dict[str, list[int]] = {}
        for rank in sorted({*self.roster.present, self.own_rank}):
            hosts.setdefault(self._host_of(rank), []).append(rank)
        return list(hosts.values())

    def _host_of(self, rank: int) -> str:
        """Of a rank that takes part. A store that was restarted may not show it again yet; who was never shown as it is
        now has shown itself, so it is here.
        """
        fact = self.facts.get(rank)
        if fact is not None:
            return fact.host
        shown, host = self._shown_at.get(rank, (None, self.own_host))
        return host if shown == self.roster.present.get(rank) else self.own_host

    def missing(self) -> list[int]:
        """The ranks that have not come, or are gone."""
        return sorted(set(range(self.capacity)) - {*self.roster.present, self.own_rank})

    def neighbours(self) -> list[Neighbour]:
        """The others of this host, as far as the store shows them."""
        return [
            Neighbour(rank, fact.instance, fact.exchange_name)
            for rank, fact in self.facts.items()
            if rank != self.own_rank and fact.host == self.own_host
        ]

    def is_distant(self, rank: int) -> bool:
        """The store shows it on another host."""
        fact = self.facts.get(rank)
        return fact is not None and fact.host != self.own_host

    def is_known_at(self, rank: int, host: str) -> bool:
        """False if the rank is shown on another host than that one (by its key): it has come again, elsewhere."""
        fact = self.facts.get(rank)
        return fact is None or host_key(fact.host) == host

    def shows(self, neighbour: Neighbour) -> bool:
        """Does the store still show this very process under its rank?"""
        fact = self.facts.get(neighbour.rank)
        return fact is not None and fact.instance == neighbour.instance

    def is_proved(self, rank: int, instance: int, secret: bytes) -> bool | None:
        """Whether whoever knows that secret is that process of that rank; None while the store has not said."""
        fact = self.facts.get(rank)
        known = fact.secret if fact is not None and fact.instance == instance else self._secrets.get(instance)
        if rank == self.own_rank:
            return False
        if known is None:
            return None
        proved = hmac.compare_digest(known, secret)
        if proved:
            self._secrets[instance] = known  # the store may forget it before we do
        return proved

    # ---- what happens ----------------------------------------------------------------------------------------------

    def begin(self, generation: int) -> Stamp:
        """We take part, for the so-manieth time."""
        self.generation = generation
        self.takes_part = True
        return self.own_stamp

    def shown(self, changes: Mapping[int, JoinFact | None]) -> list[Effect]:
        """The store shows ranks, or (None) shows them no more."""
        effects: list[Effect] = []
        for rank, fact in changes.items():
            if fact is None:
                self.facts.pop(rank, None)
                effects += self.roster.unpublished(rank, UNPUBLISHED)
            else:
                self.facts[rank] = fact
                self._remember(rank, fact)
                effects += self.roster.published(rank, fact.stamp)
        return self._noted(effects + self._distant_attached(changes))

    def all_shown(
        self, facts: Mapping[int, JoinFact], incarnation: str, now: float, host: str | None = None
    ) -> list[Effect]:
        """All that the store shows, in this life of it, after (re)connecting to it; or all of one host (its key)."""
        among = None if host is None else self._ranks_at(host)
        kept = {} if among is None else {rank: fact for rank, fact in self.facts.items() if rank not in among}
        self.facts = {**kept, **facts}
        for rank, fact in facts.items():
            self._remember(rank, fact)
        stamps = {rank: fact.stamp for rank, fact in facts.items()}
        effects = self.roster.snapshot(stamps, incarnation, now, among)
        return self._noted(effects + self._distant_attached(facts))

    def _ranks_at(self, host: str) -> set[int]:
        """Who is known to be there."""
        shown = {rank for rank, fact in self.facts.items() if host_key(fact.host) == host}
        others = self.roster.present.keys() - self.facts.keys()
        return shown | {rank for rank in others if host_key(self._host_of(rank)) == host}

    def _remember(self, rank: int, fact: JoinFact) -> None:
        self._shown_at[rank] = fact.stamp, fact.host
        self._pids.pop(rank, None)
        if fact.host == self.own_host and rank != self.own_rank:
            self._pids[rank] = fact.pid

    def _distant_attached(self, ranks: Iterable[int]) -> list[Effect]:
        """Those of other hosts count as present once the store shows them: nobody else does."""
        distant = [(rank, self.facts[rank].stamp) for rank in ranks if self.is_distant(rank)]
        return [effect for rank, stamp in distant for effect in self.roster.attached(rank, stamp)]

    def attached(self, rank: int, stamp: Stamp) -> list[Effect] | None:
        """The rank shows its memory; None when that counts no more, because it has left meanwhile."""
        effects = self._noted(self.roster.attached(rank, stamp))
        return effects if self.roster.present.get(rank) == stamp else None

    def withdrawn(self, rank: int, stamp: Stamp, reason: str) -> list[Effect]:
        """The rank itself said that it leaves."""
        return self._noted(self.roster.withdrawn(rank, stamp, reason))

    def lost(self, instance: int, reason: str) -> list[Effect]:
        """That process, as it was known so far, is over for us."""
        return self._noted(self.roster.lost(instance, reason))

    def forget_process(self, instance: int) -> None:
        """It is dead: nobody will prove to be it."""
        self._secrets.pop(instance, None)

    def missed(self, rank: int, reason: str) -> None:
        """Whoever waits for that rank waits in vain, though it may never have come."""
        self.gone.setdefault(rank, farewell(Left(rank, reason)))

    def refused(self, rank: int, reason: str) -> bool:
        """The process that the store shows there is not let in; False if somebody else is here with that rank."""
        if rank in self.roster.present:
            return False
        self.gone[rank] = f"rank {rank} cannot be reached: {reason}"
        return True

    def met_other_user(self, pid: int, reason: str) -> None:
        """A process that is not let in has connected; which rank it has, the store shows sooner or later."""
        self._other_users.pop(pid, None)
        while len(self._other_users) >= MOST_OTHER_USERS:
            self._other_users.pop(next(iter(self._other_users)))
        self._other_users[pid] = reason

    def refuse_other_users(self) -> list[tuple[int, str]]:
        """Those of them whose ranks are known by now, and why. Not only who is shown now: whoever is refused leaves."""
        found = [(rank, self._other_users.pop(pid)) for rank, pid in self._pids.items() if pid in self._other_users]
        return [(rank, reason) for rank, reason in found if self.refused(rank, reason)]

    def tick(self, now: float) -> list[Effect]:
        """Time passes."""
        return self._noted(self.roster.tick(now))

    def clear(self) -> list[Effect]:
        """We do not take part any more: everybody is gone for us, and nobody is missed."""
        effects = self.roster.clear()
        self._secrets.clear()
        self.facts.clear()
        self.gone.clear()
        self._shown_at.clear()
        self._pids.clear()
        self._other_users.clear()
        return effects

    def _noted(self, effects: list[Effect]) -> list[Effect]:
        noted: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Returned) and self.is_distant(effect.rank):
                noted += self._distant_attached([effect.rank])  # nobody else can be asked for it
            else:
                noted.append(effect)
        for effect in noted:
            if isinstance(effect, Left):
                self.gone[effect.rank] = farewell(effect)
            elif isinstance(effect, Joined):
                self.gone.pop(effect.rank, None)
        return noted


def farewell(left: Left) -> str:
    return f"rank {left.rank} is gone: {left.reason}"
