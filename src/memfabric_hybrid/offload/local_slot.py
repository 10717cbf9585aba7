"""LOCAL: memory of this process alone, at addresses that the kernel chooses. There is no store and nobody else.

Peers of transfer engines map it nevertheless: it is made of segments, like everything that others can map.
"""

from __future__ import annotations

from contextlib import suppress

from memfabric_hybrid import _native
from memfabric_hybrid.address_space import segments
from memfabric_hybrid.address_space.changes import Changes
from memfabric_hybrid.address_space.layout import GRANULE, Layout, Tier
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code, MallocFailed
from memfabric_hybrid.machine import free_addresses
from memfabric_hybrid.offload.plan import TITLE, Plan

RANK = 0
ATTEMPTS = 16  # to reserve a free place before another thread maps something there
EXTENDS_S = 120.0  # until another thread's extension must be over


class LocalSlot:
    def __init__(self, plan: Plan) -> None:
        spec = PoolSpec(TITLE, TITLE, plan.layout)
        mine = [segments.create(Tier.DRAM, 0, plan.alloc_bytes, Placement())] if plan.alloc_bytes else []
        try:
            self.space = _reserved(plan.layout)
            try:
                self._own = OwnMemory(spec, self.space, mine)
                self.space._open()
            except BaseException:
                self.space._close()
                raise
        except BaseException:
            for segment in mine:
                segment.close()
            raise
        self._changes = Changes(TITLE)

    def extend(self, size_bytes: int) -> None:
        with self._changes.turn(Deadline(EXTENDS_S)):
            if size_bytes:
                self._own.extend(Tier.DRAM, size_bytes, Placement())

    def end(self, farewell: Deadline) -> None:
        self.space._shut(int(Code.NOT_INIT), f"{TITLE} was uninitialised: call offload.initialize() again")
        self._changes.end(farewell, self._close)

    def _close(self) -> None:
        self.space._close()
        self._own.close()

    def abandon_after_fork(self) -> None:
        """Nobody to talk to."""


def _reserved(layout: Layout) -> _native.Space:
    for _ in range(ATTEMPTS - 1):
        with suppress(MallocFailed):  # another thread was quicker, or it never will be: the last attempt says why
            return _space(layout)
    return _space(layout)


def _space(layout: Layout) -> _native.Space:
    base = free_addresses.find(layout.total_bytes, GRANULE)
    return _native.Space(base, layout.capacity, layout.max_dram, layout.max_hbm, RANK, TITLE)
