"""The memory of a pool, as this process reaches it: arrays on it, copies from and to it, by rank and offset."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memfabric_hybrid import _native
from memfabric_hybrid.address_space.layout import Layout, Tier
from memfabric_hybrid.api import arguments
from memfabric_hybrid.errors import InvalidParam, NotConnected

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike


class PoolMemory:
    """Owns nothing. Any thread. `seek(rank)`: look for a rank that is not here; `why_gone(rank)`: why it is not."""

    def __init__(
        self,
        space: _native.Space,
        title: str,
        layout: Layout,
        seek: Callable[[int], None],
        why_gone: Callable[[int], str],
    ) -> None:
        self._space = space
        self._title = title
        self._layout = layout
        self._seek = seek
        self._why_gone = why_gone

    def check_rank(self, rank: int) -> None:
        if rank >= self._layout.capacity:
            raise InvalidParam(f"{self._title}: rank {rank} is outside 0..{self._layout.capacity - 1} (world size - 1)")

    def start(self, rank: int, tier: Tier) -> int:
        """The address at which that rank's memory begins, joined or not."""
        self.check_rank(rank)
        if self._layout.max_bytes(tier) == 0:
            raise InvalidParam(f"{self._title} has no {tier.name} space: its max_{tier.name.lower()}_size is 0")
        return self._space._slot_address(rank, int(tier))

    def array(
        self, rank: int, tier: Tier, offset: int, extent: tuple[int, ...], dtype: DTypeLike
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """On that rank's memory itself."""
        kind = arguments.dtype("dtype", dtype)
        if any(side < 0 for side in extent):
            raise InvalidParam(f"shape is {extent}, expected sides of 0 or more")
        size_bytes = math.prod(extent) * kind.itemsize
        self._check_place(rank, tier, offset, size_bytes)
        return self._space._view(rank, int(tier), offset, size_bytes).view(kind).reshape(extent)

    def put(self, source: object, rank: int, tier: Tier, offset: int) -> None:
        address, size_bytes, kept = arguments.extent("source", source)
        self._space._copy(address, self._place(rank, tier, offset, size_bytes), size_bytes)
        del kept  # alive until here

    def get(self, rank: int, tier: Tier, offset: int, out: object) -> None:
        address, size_bytes, kept = arguments.extent("out", out, written_by="get() writes into it")
        self._space._copy(self._place(rank, tier, offset, size_bytes), address, size_bytes)
        del kept  # alive until here

    def _place(self, rank: int, tier: Tier, offset: int, size_bytes: int) -> int:
        begin = self.start(rank, tier)
        self._check_place(rank, tier, offset, size_bytes)
        return begin + offset

    def _check_place(self, rank: int, tier: Tier, offset: int, size_bytes: int) -> None:
        self.check_rank(rank)
        if not self._space._is_live(rank):
            self._seek(rank)
        while True:
            allocated = self._space._allocated(rank, int(tier))
            if not self._space._is_live(rank):  # asked last: of one that is gone the size says nothing
                raise NotConnected(f"{self._title}: {self._why_gone(rank)}")
            if offset + size_bytes <= allocated:
                return
            if self._space._allocated(rank, int(tier)) == allocated:  # otherwise it came, or grew, meanwhile
                raise InvalidParam(
                    f"{self._title}: offset {offset} + {size_bytes} bytes is beyond the {allocated} bytes {tier.name} "
                    f"of rank {rank}"
                )
