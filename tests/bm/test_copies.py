"""Copies between three ranks of one host, checked byte by byte against a model, on both routes that lead there.

This process is rank 0 and copies; ranks 1 and 2 are other processes whose memory is source and target.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memfabric_hybrid.bm import BmCopyType, BmDataOpType, BmMemType
from support import campaigns, pool_worker
from support.copy_field import HALF, PLAIN, SIZE, TIERS, Field, Place
from support.pool_worker import MIB
from support.workers import Cluster

EXAMPLES = campaigns.length("MF_LAYOUT_EXAMPLES", 12)  # for every type and every way to copy
RANKS = (0, 1, 2)


@pytest.fixture(params=[BmDataOpType.SDMA, BmDataOpType.HOST_TCP], ids=["mapped", "tcp"])
def cluster(
    request: pytest.FixtureRequest, store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]]
) -> Iterator[Cluster]:
    """Ranks 1 and 2; this process is rank 0."""
    options = {"dram": SIZE, "hbm": SIZE, "data_op_type": request.param}
    assert pool_worker.take_part(store_url, 3, **options) == 0
    with workers(2) as cluster:
        for index in (0, 1):
            assert cluster.call(index, "take_part", store_url, 3, **options) == index + 1
        yield cluster


@pytest.fixture
def field(cluster: Cluster) -> Iterator[Field]:
    """At the end every rank is asked for its own memory, as it sees it itself."""
    field = Field(pool_worker.pools[0], RANKS)
    yield field
    for index in (0, 1):
        for tier, mem_type in TIERS.items():
            seen = cluster.call(index, "load", index + 1, 0, SIZE, mem_type)
            assert seen == field.model[f"{index + 1} {tier}"].tobytes()


NATIVE_LIST: Callable[[list[int]], Any] = lambda numbers: array.array("Q", numbers)  # noqa: E731
CONTAINERS: list[Any] = [list, tuple, np.uint64, np.int64, NATIVE_LIST]


def as_container(kind: Any) -> Callable[[list[int]], Any]:
    return (lambda numbers: np.array(numbers, kind)) if isinstance(kind, type) and kind not in (list, tuple) else kind


def test_every_type_between_every_pair_of_places(field: Field) -> None:
    field.exercise()


small = st.integers(1, 300)
any_size = st.one_of(small, st.integers(1, 70_000), st.sampled_from([4096, 65_536, MIB, HALF]))


@st.composite
def pieces_of_a_batch(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """(source offset, target offset, size): targets one behind the other with gaps, in a shuffled order."""
    count = draw(st.integers(1, 60))
    sizes = draw(st.lists(st.one_of(small, st.integers(1, 20_000)), min_size=count, max_size=count))
    gap = draw(st.integers(0, 40))
    pieces, target_at = [], HALF
    for size in sizes:
        if target_at + size > SIZE:
            break
        pieces.append((draw(st.integers(0, HALF - size)), target_at, size))
        target_at += size + gap
    return draw(st.permutations(pieces))


@pytest.mark.soak
@pytest.mark.parametrize("copy_type", BmCopyType, ids=lambda copy_type: copy_type.name)
def test_random_layouts(field: Field, copy_type: BmCopyType) -> None:
    pairs = st.sampled_from(field.pairs[copy_type])
    flags = st.sampled_from([0, 1])

    @settings(max_examples=EXAMPLES)
    @given(pair=pairs, size=any_size, data=st.data(), flag=flags)
    def one_piece(pair: tuple[Place, Place], size: int, data: st.DataObject, flag: int) -> None:
        source_at = data.draw(st.integers(0, HALF - size), "source offset")
        target_at = data.draw(st.integers(HALF, SIZE - size), "target offset")
        field.copy(pair[0], source_at, pair[1], target_at, size, copy_type, flag)
        field.wait()
        field.check(pair[1])

    @settings(max_examples=EXAMPLES)
    @given(pair=pairs, pieces=pieces_of_a_batch(), kind=st.sampled_from(CONTAINERS), flag=flags)
    def a_batch(pair: tuple[Place, Place], pieces: list[tuple[int, int, int]], kind: Any, flag: int) -> None:
        field.batch(*pair, pieces, as_container(kind), copy_type, flag)
        field.wait()
        field.check(pair[1])

    @settings(max_examples=EXAMPLES)
    @given(pair=pairs, width=small, height=st.integers(1, 500), pads=st.tuples(small, small), flag=flags)
    def a_rectangle(pair: tuple[Place, Place], width: int, height: int, pads: tuple[int, int], flag: int) -> None:
        pitches = (width + pads[0] - 1, width + pads[1] - 1)
        field.rectangle(*pair, pitches, width, height, copy_type, flag)
        field.wait()
        field.check(pair[1])

    one_piece()
    a_batch()
    a_rectangle()


def test_async_copies_of_one_object_keep_their_order(field: Field) -> None:
    """A chain over three ranks: each copy needs the one before."""
    size = 200_000
    chain = [PLAIN, "1 DRAM", "2 HBM", "0 DRAM", "1 HBM", "2 DRAM"]
    for source, target in pairwise(chain):
        source_at = 0 if source == PLAIN else HALF
        field.copy(source, source_at, target, HALF, size, BmCopyType.AUTO, 1)
    field.wait()
    for place in chain:
        field.check(place)
    np.testing.assert_array_equal(field.seen("2 DRAM")[HALF : HALF + size], field.plain[:size])


def test_batch_is_checked_as_a_whole_before_the_first_byte_moves(field: Field) -> None:
    good, target = field.address(PLAIN, 0), field.address("1 DRAM", HALF)
    beyond = field.pool.peer_rank_ptr(1, BmMemType.HOST) + SIZE - 5
    code = field.pool.copy_data_batch([good, good], [target, beyond], [100, 6], 2, BmCopyType.H2G)
    assert code == -2000
    field.check("1 DRAM")


@pytest.mark.parametrize("cluster", [BmDataOpType.SDMA], indirect=True)
def test_direct_loads_and_stores_are_seen_by_all(cluster: Cluster) -> None:
    pool_worker.store(1, 1000, b"from rank 0")
    assert cluster.call(0, "load", 1, 1000, 11) == b"from rank 0"
    assert cluster.call(1, "load", 1, 1000, 11) == b"from rank 0"
    cluster.call(1, "store", 0, 5, b"from rank 2", BmMemType.DEVICE)
    assert pool_worker.load(0, 5, 11, BmMemType.DEVICE) == b"from rank 2"


def test_large_copies_cross_every_size_class(store_url: str, workers: Any) -> None:
    """Beyond the caches: threads and non-temporal stores, odd sizes and offsets."""
    size = 48 * MIB
    assert pool_worker.take_part(store_url, 2, dram=size + 2 * MIB) == 0
    pool = pool_worker.pools[0]
    with workers(1) as cluster:
        assert cluster.call(0, "take_part", store_url, 2, dram=size + 2 * MIB) == 1
        source = np.random.default_rng(3).integers(0, 256, size + 64, np.uint8)
        target = pool.array(1, size + 4096, np.uint8)
        for length, source_at, target_at in ((size, 0, 0), (size - 1, 3, 61), (9 * MIB + 5, 1, 1), (MIB + 1, 63, 2)):
            target[:] = 0
            start, end = pool.peer_rank_ptr(1, BmMemType.HOST) + target_at, target_at + length
            assert pool.copy_data(source.ctypes.data + source_at, start, length, BmCopyType.H2G) == 0
            np.testing.assert_array_equal(target[target_at:end], source[source_at : source_at + length])
            assert not target[:target_at].any()
            assert not target[end:].any()
        del target
