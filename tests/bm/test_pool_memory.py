"""Memory that comes and goes while somebody asks for it: what is said is about one moment."""

from __future__ import annotations

from typing import Any

import pytest

from memfabric_hybrid.address_space.layout import Layout, Tier
from memfabric_hybrid.bm.pool_memory import PoolMemory
from memfabric_hybrid.errors import InvalidParam, NotConnected

MIB = 1 << 20


class ChangingSpace:
    """Rank 1 lives, with so many bytes, for as many questions about its size as there are numbers; then it is gone."""

    def __init__(self, *allocated: int) -> None:
        self._sizes = list(allocated)

    def _is_live(self, rank: int) -> bool:
        return bool(self._sizes)

    def _allocated(self, rank: int, tier: int) -> int:
        return self._sizes.pop(0) if self._sizes else 0

    def _slot_address(self, rank: int, tier: int) -> int:
        return 4096

    def _copy(self, source: int, target: int, size_bytes: int) -> None:
        pass


def memory(space: Any) -> PoolMemory:
    return PoolMemory(
        space, "bm object 0", Layout(2, 4 * MIB, 0), lambda rank: None, lambda rank: f"rank {rank} is gone"
    )


def test_a_rank_that_goes_in_between_is_gone_and_not_too_small() -> None:
    with pytest.raises(NotConnected, match="rank 1 is gone"):
        memory(ChangingSpace(MIB)).put(b"four", 1, Tier.DRAM, 0)
    with pytest.raises(NotConnected, match="rank 1 is gone"):
        memory(ChangingSpace()).put(b"four", 1, Tier.DRAM, 0)


def test_a_rank_that_comes_in_between_is_there() -> None:
    memory(ChangingSpace(0, MIB, MIB, MIB)).put(b"four", 1, Tier.DRAM, 0)


def test_what_is_too_small_is_said_with_its_size() -> None:
    with pytest.raises(InvalidParam, match="beyond the 1048576 bytes DRAM of rank 1"):
        memory(ChangingSpace(*[MIB] * 4)).put(b"four", 1, Tier.DRAM, MIB)
