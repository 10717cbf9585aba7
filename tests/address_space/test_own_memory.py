"""Our own part of an object: mapped, shown, duplicated, extended and closed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from memfabric_hybrid import _native
from memfabric_hybrid.address_space import own_memory, segments
from memfabric_hybrid.address_space.layout import MIB, Layout, Tier
from memfabric_hybrid.address_space.messages import SegmentFact
from memfabric_hybrid.address_space.own_memory import OwnMemory
from memfabric_hybrid.address_space.pool_spec import PoolSpec
from memfabric_hybrid.address_space.segments import Placement
from memfabric_hybrid.errors import InvalidParam, NoResources
from memfabric_hybrid.machine import file_descriptors

RANK = 1
SPEC = PoolSpec("bm/7", "bm object 7", Layout(2, 8 * MIB, 2 * MIB))
BASE = 0x2000_0000_0000


@pytest.fixture
def space() -> Iterator[_native.Space]:
    space = _native.Space(BASE, 2, SPEC.layout.max_dram, SPEC.layout.max_hbm, RANK, SPEC.title)
    yield space
    space._close()


@pytest.fixture
def enclosed() -> Iterator[int]:
    fd = os.memfd_create("enclosed")
    yield fd
    os.close(fd)


@pytest.fixture
def own(space: _native.Space, enclosed: int) -> Iterator[OwnMemory]:
    mine = segments.create(Tier.DRAM, 0, 2 * MIB, Placement())
    own = OwnMemory(SPEC, space, [mine], enclosed_fds=(enclosed,))
    yield own
    own.close()


def test_is_mapped_in_our_slot(own: OwnMemory, space: _native.Space) -> None:
    assert space._is_live(RANK)
    assert (own.size_bytes(Tier.DRAM), own.size_bytes(Tier.HBM)) == (2 * MIB, 0)


def test_shows_segments_then_what_is_enclosed(own: OwnMemory, enclosed: int) -> None:
    own.extend(Tier.HBM, 2 * MIB, Placement())
    facts, fds = own.shown()
    assert facts == (SegmentFact(0, 0, 2 * MIB), SegmentFact(1, 0, 2 * MIB))
    assert [os.fstat(fd).st_size for fd in fds] == [2 * MIB, 2 * MIB, 0]
    assert fds[-1] == enclosed


def test_duplicates_outlive_it(own: OwnMemory) -> None:
    facts, fds = own.duplicates()
    own.close()
    assert facts == (SegmentFact(0, 0, 2 * MIB),)
    assert [os.fstat(fd).st_size for fd in fds] == [2 * MIB, 0]
    assert not any(os.get_inheritable(fd) for fd in fds)
    for fd in fds:
        os.close(fd)


def test_closed_it_shows_nothing(own: OwnMemory, enclosed: int) -> None:
    """Also nothing of what was enclosed, whose owner closes it next."""
    own.close()
    assert own.shown() == ((), [])
    assert own.duplicates() == ((), [])
    os.fstat(enclosed)


def test_duplicates_are_all_or_none(own: OwnMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leak check after the test counts them."""
    made: list[int] = []

    def one_only(fd: int) -> int:
        if made:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made.append(file_descriptors.duplicate(fd))
        return made[0]

    monkeypatch.setattr(own_memory, "duplicate", one_only)
    with pytest.raises(NoResources, match="rank 1 has no descriptor for its answer: Too many open files"):
        own.duplicates()
    assert len(made) == 1


def test_extends_up_to_the_limit(own: OwnMemory) -> None:
    own.extend(Tier.DRAM, 6 * MIB, Placement())
    with pytest.raises(InvalidParam, match=rf"bm object 7: {2 * MIB} bytes more DRAM .* {8 * MIB} \(max_dram_size\)"):
        own.extend(Tier.DRAM, 2 * MIB, Placement())
    assert own.size_bytes(Tier.DRAM) == 8 * MIB
