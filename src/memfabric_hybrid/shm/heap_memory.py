"""The memory of a symmetric heap, as this process reaches it: arrays on it, copies from and to it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from memfabric_hybrid import _native
from memfabric_hybrid.address_space.layout import Tier
from memfabric_hybrid.api import arguments
from memfabric_hybrid.errors import InvalidParam, NotConnected
from memfabric_hybrid.transports.op_types import ShmDataOpType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

ADDRESSABLE = ShmDataOpType.MTE | ShmDataOpType.SDMA


class HeapMemory:
    """Owns nothing. Any thread."""

    def __init__(self, space: _native.Space, title: str, gva: int, symmetric_size: int, rank_size: int) -> None:
        self._space = space
        self._title = title
        self._gva = gva
        self._symmetric_size = symmetric_size
        self._rank_size = rank_size

    def reach(self, rank: int) -> ShmDataOpType:
        """How that rank's memory can be reached; 0 if it is gone."""
        if self._space._addressable(self._gva + rank * self._symmetric_size):
            return ADDRESSABLE
        return ShmDataOpType.RDMA if self._space._is_live(rank) else ShmDataOpType(0)

    def array(
        self, rank: int, extent: tuple[int, ...], dtype: DTypeLike, offset: int
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """On that rank's memory itself."""
        kind = arguments.dtype("dtype", dtype)
        if any(side < 0 for side in extent):
            raise InvalidParam(f"shape is {extent}, expected sides of 0 or more")
        size_bytes = math.prod(extent) * kind.itemsize
        self._check_place(rank, offset, size_bytes)
        way = self.reach(rank)
        if way == ShmDataOpType.RDMA:
            raise NotConnected(
                f"rank {rank} of {self._title} is reached by RDMA only, or on another host: copy with put() and get()"
            )
        if not way:
            raise NotConnected(f"rank {rank} of {self._title} is gone")
        return self._space._view(rank, int(Tier.DRAM), offset, size_bytes).view(kind).reshape(extent)

    def put(self, source: object, rank: int, offset: int) -> None:
        address, size_bytes, kept = arguments.extent("source", source)
        self._space._copy(address, self._place(rank, offset, size_bytes), size_bytes)
        del kept  # alive until here

    def get(self, rank: int, offset: int, out: object) -> None:
        address, size_bytes, kept = arguments.extent("out", out, written_by="get() writes into it")
        self._space._copy(self._place(rank, offset, size_bytes), address, size_bytes)
        del kept  # alive until here

    def _place(self, rank: int, offset: int, size_bytes: int) -> int:
        self._check_place(rank, offset, size_bytes)
        return self._gva + rank * self._symmetric_size + offset

    def _check_place(self, rank: int, offset: int, size_bytes: int) -> None:
        if rank >= self._rank_size:
            raise InvalidParam(f"{self._title}: rank is {rank}, expected 0..{self._rank_size - 1} (rank_size - 1)")
        if offset + size_bytes > self._symmetric_size:
            raise InvalidParam(
                f"{self._title}: offset {offset} + {size_bytes} bytes is beyond the {self._symmetric_size} bytes of "
                "each rank"
            )
