"""The other ranks' memory: which share fits, what is mapped of it, and in which order it goes."""

from __future__ import annotations

import pytest

from memfabric_hybrid.address_space.layout import MIB
from memfabric_hybrid.address_space.messages import SegmentFact, Share
from memfabric_hybrid.address_space.peer_memory import PeerMemory
from memfabric_hybrid.errors import InvalidParam
from memfabric_hybrid.membership.roster import Left
from support.pool_twins import SPEC, TwinSpace

LAYOUT = SPEC.layout
FDS = (98, 99)  # of nothing; a twin opens none


def share(*segments: SegmentFact, max_dram: int = LAYOUT.max_dram) -> Share:
    return Share(1, 11, 1, 4711, max_dram, LAYOUT.max_hbm, "", 1, segments)


@pytest.fixture
def space() -> TwinSpace:
    return TwinSpace(0)


@pytest.fixture
def memory(space: TwinSpace) -> PeerMemory:
    return PeerMemory(SPEC, space)  # type: ignore[arg-type]


def test_all_ranks_must_have_the_same_layout(memory: PeerMemory) -> None:
    with pytest.raises(InvalidParam, match=rf"bm object 7: rank 1 .* {2 * MIB} .* rank 0 with {4 * MIB} and 0"):
        memory.check(share(max_dram=2 * MIB), ())


def test_every_segment_needs_a_file(memory: PeerMemory) -> None:
    one = share(SegmentFact(0, 0, MIB))
    with pytest.raises(InvalidParam, match="shows 1 segments in 0 files"):
        memory.check(one, ())
    memory.check(one, FDS)  # more is fine: they are enclosed


def test_only_what_is_new_is_mapped(memory: PeerMemory, space: TwinSpace) -> None:
    first, second = SegmentFact(0, 0, 2 * MIB), SegmentFact(0, 2 * MIB, 2 * MIB)
    memory.map(share(first), FDS[:1])
    memory.map(share(first, second), FDS)
    assert space.done == [
        ("attach", 1, 0, True),
        ("activate", 1),
        ("attach", 1, 2 * MIB, True),
        ("activate", 1),
    ]


def test_nobody_can_start_a_copy_when_the_first_memory_goes(memory: PeerMemory, space: TwinSpace) -> None:
    assert memory.let_go([Left(1, "why"), Left(2, "for the same reason")])
    assert [what[:2] for what in space.done] == [("revoke", 1), ("revoke", 2), ("detach", 1), ("detach", 2)]


def test_running_copies_keep_what_goes(memory: PeerMemory, space: TwinSpace) -> None:
    space.is_busy = True
    assert not memory.let_go([Left(1, "why")])
    assert not memory.collect()
    space.is_busy = False
    assert memory.collect()
