"""What the pool of a ShareMemory tells, passed on to those of its parts that it concerns."""

from __future__ import annotations

from collections.abc import Sequence

from memfabric_hybrid.address_space.pool_owner import PoolOwner
from memfabric_hybrid.membership.roster import Stamp
from memfabric_hybrid.shm.atomic_values import AtomicValues
from memfabric_hybrid.shm.control_pages import ControlPages
from memfabric_hybrid.shm.failed_ranks import FailedRanks
from memfabric_hybrid.store import Refusal
from memfabric_hybrid.transports.routes import Route, route_between
from memfabric_hybrid.transports.ucx_ends import UcxEnd


class HeapEvents(PoolOwner):
    def __init__(self, pages: ControlPages, failed_ranks: FailedRanks, op_type: int, own_ucx: UcxEnd) -> None:
        self.values: AtomicValues | None = None  # there are some once the object is complete
        self._pages = pages
        self._failed_ranks = failed_ranks
        self._op_type = op_type
        self._own_ucx = own_ucx

    def route(self, tag: str, op_type: int, ucx: UcxEnd, *, same_host: bool) -> Route:
        allowed = self._op_type & op_type or self._op_type
        return route_between(tag, tag, allowed, {}, same_host=same_host, own_ucx=self._own_ucx, peer_ucx=ucx)

    def take_enclosed(self, rank: int, fds: Sequence[int]) -> None:
        self._pages.take(rank, fds)

    def rank_gone(self, rank: int, reason: str) -> None:
        self._failed_ranks.add(rank, reason)

    def rank_back(self, rank: int, stamp: Stamp) -> None:
        self._failed_ranks.take_back(rank, stamp)

    def keys_refused(self, refusals: Sequence[Refusal]) -> None:
        if self.values is not None:
            self.values.refused(refusals)
