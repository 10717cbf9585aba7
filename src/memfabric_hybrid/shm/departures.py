"""Who of an object's ranks is gone: what the pool reports, passed on to those who wait for them.

An object of Share Memory is complete or broken: a rank that is gone, even one that comes back, breaks it for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from memfabric_hybrid import _native
from memfabric_hybrid.errors import NotConnected


class Departures:
    """`add` is called by the pool under its lock, on any thread; nothing here blocks."""

    def __init__(self) -> None:
        self._group: _native.HostGroup | None = None
        self._reasons: dict[int, str] = {}

    def tell(self, group: _native.HostGroup, gone_already: Callable[[], Mapping[int, str]]) -> None:
        """From now on every departure counts, and so do those since all ranks were here.

        In this order: who leaves between the two steps is told twice, not never.
        """
        self._group = group
        _native._pause_point("shm.departures.tell")
        for rank, reason in gone_already().items():
            self.add(rank, reason)

    def add(self, rank: int, reason: str) -> None:
        """Before all ranks were here they may come and go; nobody has to be told."""
        if self._group is not None:
            self._reasons[rank] = reason
            self._group._declare_gone(rank, reason)

    def close(self) -> None:
        self._group = None

    def first(self) -> str:
        """Why the first one is gone; "" while nobody is."""
        return next(iter(self._reasons.values()), "")

    def check(self, ranks: frozenset[int] | None = None) -> None:
        """NotConnected when one of these ranks (None: any) is gone."""
        for rank, reason in list(self._reasons.items()):
            if ranks is None or rank in ranks:
                raise NotConnected(f"{reason}; destroy the object and create it again")
