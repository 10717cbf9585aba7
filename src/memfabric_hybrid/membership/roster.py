"""Who takes part in one object: a pure state machine fed with what is seen, answering with what changed.

Two sources tell about a member: the store (published, unpublished, snapshots after a reconnect) and the exchange of
this host (attached, lost). A member counts as present from the moment its memory is attached until any source says
that it is gone. `Stamp`s keep the sources apart in time: a late word about an earlier life never touches a later one.

Pure: no sockets, no threads, no clock. One owner (a pool's group) calls it under its lock and carries out the effects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

MOST_GIVEN_UP = 16  # lives of one rank that are remembered
MOST_WITHDRAWN = 1024  # processes whose last words are remembered, for those that come behind them


class Stamp(NamedTuple):
    """One participation of one process: `instance` is random per process, `generation` counts its joins."""

    instance: int
    generation: int


class Joined(msgspec.Struct, frozen=True):
    """The rank is there and its memory can be used."""

    rank: int


class Left(msgspec.Struct, frozen=True):
    """The rank is gone; `reason` completes "rank n cannot be reached: …" for its copies from now on."""

    rank: int
    reason: str


class Returned(msgspec.Struct, frozen=True):
    """The store shows the rank again after it had counted as gone: its memory has to be asked for."""

    rank: int


Effect = Joined | Left | Returned


class Roster(msgspec.Struct):
    """The present members of one object as this process sees them."""

    own_rank: int
    grace_s: float  # how long a store that was away may take to hear from a member again
    epoch: int = 0  # number of the view; grows with every change
    present: dict[int, Stamp] = msgspec.field(default_factory=dict)
    _published: dict[int, Stamp] = msgspec.field(default_factory=dict)
    _incarnation: str | None = None
    _missing: dict[int, tuple[Stamp, float]] = msgspec.field(default_factory=dict)
    _withdrawn: dict[int, int] = msgspec.field(default_factory=dict)  # instance → its last generation that is over
    _given_up: dict[int, dict[Stamp, None]] = msgspec.field(default_factory=dict)  # on the store's word: see `_give_up`
    _displaced: dict[int, Stamp] = msgspec.field(default_factory=dict)  # by a life that showed itself after it

    def attached(self, rank: int, stamp: Stamp) -> list[Effect]:
        """The rank shows its memory (again, when the stamp is known already).

        It may be heard late: a participation that was withdrawn or followed by a newer one stays over, one that the
        store gave up waits until the store takes that back. Whether the stamp counts is seen in `present`.
        """
        effects: list[Effect] = []
        before = self.present.get(rank)
        if before == stamp or stamp in self._given_up.get(rank, ()):
            return effects
        if stamp.generation <= self._withdrawn.get(stamp.instance, 0):
            return effects
        if before is not None:
            if before.instance == stamp.instance and before.generation > stamp.generation:
                return effects
            if before.instance != stamp.instance:
                self._displaced[rank] = before
            effects += self._drop(rank, "it joined anew")
        if self._displaced.get(rank) == stamp:
            del self._displaced[rank]  # it is back
        self.present[rank] = stamp
        self.epoch += 1
        return [*effects, Joined(rank)]

    def published(self, rank: int, stamp: Stamp) -> list[Effect]:
        """The store shows the rank. A present life that it showed before is over; one it never showed is newer."""
        if rank == self.own_rank:
            return []
        shown = self._published.get(rank)
        self._published[rank] = stamp
        self._missing.pop(rank, None)
        given_up = self._given_up.get(rank, {})
        was_given_up = stamp in given_up
        given_up.pop(stamp, None)
        if shown is not None and shown.instance != stamp.instance:
            self._give_up(rank, shown)
        before = self.present.get(rank)
        if before is None:
            return [Returned(rank)] if was_given_up or stamp == self._displaced.get(rank) else []
        if shown is not None and stamp.instance != before.instance == shown.instance:
            return self._drop(rank, "it was taken over by another process")
        return []

    def unpublished(self, rank: int, reason: str) -> list[Effect]:
        """The store shows the rank no more. What was published is over, a newer life is not."""
        self._missing.pop(rank, None)
        gone = self._published.pop(rank, None)
        if gone is None:
            return []
        self._give_up(rank, gone)
        return self._drop(rank, reason) if self.present.get(rank) == gone else []

    def withdrawn(self, rank: int, stamp: Stamp, reason: str = "") -> list[Effect]:
        """The rank itself said that it leaves, and perhaps what made it leave."""
        self._withdrawn[stamp.instance] = max(stamp.generation, self._withdrawn.pop(stamp.instance, 0))
        if len(self._withdrawn) > MOST_WITHDRAWN:
            del self._withdrawn[next(iter(self._withdrawn))]
        if self.present.get(rank) != stamp:
            return []
        return self._give_way(rank, "it has left" + (f": {reason}" if reason else ""))

    def lost(self, instance: int, reason: str) -> list[Effect]:
        """The connection to that process broke: whatever it took part in with that life is over.

        What it withdrew stays so: it may have said on another connection, before, that it takes part.
        """
        ranks = [rank for rank, stamp in self.present.items() if stamp.instance == instance]
        return [effect for rank in ranks for effect in self._give_way(rank, reason)]

    def snapshot(
        self, members: Mapping[int, Stamp], incarnation: str, now: float, among: Collection[int] | None = None
    ) -> list[Effect]:
        """All that the store shows, after (re)connecting to it; or all `among` these and new ones.

        A store that has been restarted, or that all were cut off from for longer than the heartbeat time-out, hears
        from the members one by one. So a present rank that it does not show yet gets `grace_s` before it counts as
        gone; who died meanwhile is told by the kernel, or by the first copy that goes there.
        """
        self._incarnation = incarnation
        effects: list[Effect] = []
        for rank, stamp in members.items():
            effects += self.published(rank, stamp)
        for rank, stamp in list(self.present.items()):
            if rank not in members and (among is None or rank in among):
                self._missing.setdefault(rank, (stamp, now + self.grace_s))
        for rank in self._published.keys() - members.keys() - self._missing.keys():
            if among is None or rank in among:
                self._give_up(rank, self._published.pop(rank))
        return effects

    def store_lost(self) -> None:
        """Nobody can register there any more: the next snapshot gives everybody the whole time anew."""
        self._missing.clear()
        self._incarnation = None

    def is_overdue(self, now: float) -> bool:
        """Whether `tick` would give somebody up: the store has served all the time, hasn't it?"""
        return any(now >= until for _, until in self._missing.values())

    def wait_longer(self, now: float) -> None:
        """The store did not answer: those it has not heard from could not register."""
        self._missing = {rank: (stamp, now + self.grace_s) for rank, (stamp, _) in self._missing.items()}

    def tick(self, now: float) -> list[Effect]:
        """Time passes: ranks that the store has not heard from again in time are gone."""
        effects: list[Effect] = []
        for rank, (stamp, until) in list(self._missing.items()):
            if now < until:
                continue
            del self._missing[rank]
            if self.present.get(rank) == stamp:
                self._give_up(rank, stamp)
                effects += self._drop(rank, "it did not register with the store again")
        return effects

    @property
    def shown_by(self) -> str | None:
        """The life of the store that shows all who are present; None while it is away or has not heard from all."""
        return None if self._missing else self._incarnation

    @property
    def unheard(self) -> list[int]:
        """Present ranks that the store has not heard from yet since it was away."""
        return sorted(self._missing)

    @property
    def waits_for_time(self) -> bool:
        """True while `tick` has something to decide."""
        return bool(self._missing)

    def clear(self) -> list[Effect]:
        """This process leaves: everybody is gone for it."""
        ranks = list(self.present)
        self._published.clear()
        self._missing.clear()
        self._given_up.clear()
        self._displaced.clear()
        self._incarnation = None
        return [effect for rank in ranks for effect in self._drop(rank, "this process left")]

    def _give_up(self, rank: int, stamp: Stamp) -> None:
        """On the store's word, which it may take back, also after it has shown others with that rank in between.

        Until then the last words of that life, which may come late, count no more.
        """
        given_up = self._given_up.setdefault(rank, {})
        given_up[stamp] = None
        if len(given_up) > MOST_GIVEN_UP:
            del given_up[next(iter(given_up))]

    def _give_way(self, rank: int, reason: str) -> list[Effect]:
        """Its last words may have come after the first ones of whoever got its rank, and displaced that one."""
        effects = self._drop(rank, reason)
        shown = self._published.get(rank)
        return [*effects, Returned(rank)] if shown is not None and shown == self._displaced.get(rank) else effects

    def _drop(self, rank: int, reason: str) -> list[Effect]:
        del self.present[rank]
        self.epoch += 1
        return [Left(rank, reason)]
