"""Which of an object's ranks failed or left: what the pool reports, passed on to those who wait for them.

An object of Share Memory is complete or broken. A rank that ended breaks it for good, also if a successor comes; one
that was only silent (stopped, or without its store) and is there again in the same life makes it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memfabric_hybrid import _native
from memfabric_hybrid.errors import NotConnected
from memfabric_hybrid.membership.roster import Stamp


class FailedRanks:
    """`add` is called by the pool under its lock, on any thread; nothing here blocks."""

    def __init__(self) -> None:
        self._group: _native.HostGroup | None = None
        self._reasons: dict[int, str] = {}
        self._lives: Mapping[int, Stamp] = {}

    def tell(
        self, group: _native.HostGroup, lives: Mapping[int, Stamp], gone_already: Callable[[], Mapping[int, str]]
    ) -> None:
        """From now on every departure counts, and so do those since all ranks were here, in these `lives`.

        In this order: who leaves between the two steps is told twice, not never.
        """
        self._lives = lives
        self._group = group
        _native._pause_point("shm.failed_ranks.tell")
        for rank, reason in gone_already().items():
            self.add(rank, reason)

    def add(self, rank: int, reason: str) -> None:
        """Before all ranks were here they may come and go; nobody has to be told."""
        if self._group is not None:
            self._reasons[rank] = reason
            self._group._declare_gone(rank, reason)

    def take_back(self, rank: int, life: Stamp) -> None:
        """The pool sees that rank, in this life. Called as `add` is."""
        if self._group is not None and self._lives.get(rank) == life and self._reasons.pop(rank, None) is not None:
            self._group._take_back(rank)

    def close(self) -> None:
        self._group = None

    def first(self) -> str:
        """Why the first one is gone; "" while nobody is."""
        return next(iter(self._reasons.values()), "")

    def check(self, ranks: frozenset[int] | None = None) -> None:
        """NotConnected when one of these ranks (None: any) is gone."""
        for rank, reason in list(self._reasons.items()):
            if ranks is None or rank in ranks:
                raise NotConnected(self._group._complaint(rank) if self._group is not None else reason)
