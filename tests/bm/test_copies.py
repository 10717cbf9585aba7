"""Every copy type, every way to copy, every pair of places, checked byte by byte against a model.

This process is rank 0 and copies; ranks 1 and 2 are other processes whose memory is source and target. Sources lie in
the first half of every place and targets in the second, so that ranges never overlap.
"""

from __future__ import annotations

import array
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memfabric_hybrid as mf
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType
from support import campaigns, pool_worker
from support.pool_worker import MIB
from support.workers import Cluster

HALF = MIB
EXAMPLES = campaigns.length("MF_LAYOUT_EXAMPLES", 12)  # for every type and every way to copy
SIZE = 2 * HALF
RANKS = (0, 1, 2)
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Place = str  # "plain", or rank and tier such as "2 HBM"

PLAIN = "plain"
OWN_DRAM, OWN_HBM = "0 DRAM", "0 HBM"
GLOBAL_HOST = [f"{rank} DRAM" for rank in RANKS]
GLOBAL = [*GLOBAL_HOST, *(f"{rank} HBM" for rank in RANKS)]
LOCAL, LOCAL_HOST = [PLAIN, OWN_DRAM, OWN_HBM], [PLAIN, OWN_DRAM]
SIDES: dict[BmCopyType, tuple[list[Place], list[Place]]] = {
    BmCopyType.L2G: (LOCAL, GLOBAL),
    BmCopyType.G2L: (GLOBAL, LOCAL),
    BmCopyType.G2H: (GLOBAL, LOCAL_HOST),
    BmCopyType.H2G: (LOCAL_HOST, GLOBAL),
    BmCopyType.L2GH: (LOCAL, GLOBAL_HOST),
    BmCopyType.GH2L: (GLOBAL_HOST, LOCAL),
    BmCopyType.GH2H: (GLOBAL_HOST, LOCAL_HOST),
    BmCopyType.H2GH: (LOCAL_HOST, GLOBAL_HOST),
    BmCopyType.G2G: (GLOBAL, GLOBAL),
}
PAIRS = {copy_type: list(product(*sides)) for copy_type, sides in SIDES.items()}
PAIRS[BmCopyType.AUTO] = [pair for pair in product([PLAIN, *GLOBAL], repeat=2) if pair != (PLAIN, PLAIN)]


class Field:
    """The pool, all places as arrays, and a model of what they must hold."""

    def __init__(self, pool: BigMemory) -> None:
        self.pool = pool
        self.real: dict[Place, Bytes] = {PLAIN: np.zeros(SIZE, np.uint8)}
        for rank, (tier, mem_type) in product(RANKS, (("DRAM", BmMemType.HOST), ("HBM", BmMemType.DEVICE))):
            self.real[f"{rank} {tier}"] = pool.array(rank, SIZE, np.uint8, mem_type=mem_type)
        fill = np.random.default_rng(1)
        for place in self.real.values():
            place[:] = fill.integers(0, 256, SIZE, np.uint8)
        self.model = {name: place.copy() for name, place in self.real.items()}

    def address(self, place: Place, offset: int) -> int:
        return int(self.real[place].ctypes.data) + offset

    def expect(self, source: Place, source_at: int, target: Place, target_at: int, size: int) -> None:
        self.model[target][target_at : target_at + size] = self.model[source][source_at : source_at + size]

    def check(self, place: Place) -> None:
        np.testing.assert_array_equal(self.real[place], self.model[place], f"{place} differs")

    def copy(self, source: Place, source_at: int, target: Place, target_at: int, size: int, *how: Any) -> None:
        code = self.pool.copy_data(self.address(source, source_at), self.address(target, target_at), size, *how)
        assert code == 0, mf.get_last_err_msg()
        self.expect(source, source_at, target, target_at, size)

    def batch(
        self, source: Place, target: Place, pieces: Sequence[tuple[int, int, int]], container: Any, *how: Any
    ) -> None:
        sources = container([self.address(source, source_at) for source_at, _, _ in pieces])
        targets = container([self.address(target, target_at) for _, target_at, _ in pieces])
        sizes = container([size for _, _, size in pieces])
        code = self.pool.copy_data_batch(sources, targets, sizes, len(pieces), *how)
        assert code == 0, mf.get_last_err_msg()
        for source_at, target_at, size in pieces:
            self.expect(source, source_at, target, target_at, size)

    def rectangle(
        self, source: Place, target: Place, pitches: tuple[int, int], width: int, height: int, *how: Any
    ) -> None:
        code = self.pool.copy_data_2d(
            self.address(source, 0), pitches[0], self.address(target, HALF), pitches[1], width, height, *how
        )
        assert code == 0, mf.get_last_err_msg()
        for row in range(height):
            self.expect(source, row * pitches[0], target, HALF + row * pitches[1], width)

    def wait(self) -> None:
        assert self.pool.wait() == 0, mf.get_last_err_msg()


@pytest.fixture
def cluster(store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]]) -> Iterator[Cluster]:
    """Ranks 1 and 2; this process is rank 0."""
    assert pool_worker.take_part(store_url, 3, dram=SIZE, hbm=SIZE) == 0
    with workers(2) as cluster:
        for index in (0, 1):
            assert cluster.call(index, "take_part", store_url, 3, dram=SIZE, hbm=SIZE) == index + 1
        yield cluster


@pytest.fixture
def field(cluster: Cluster) -> Iterator[Field]:
    """At the end every rank is asked for its own memory, as it sees it itself."""
    field = Field(pool_worker.pools[0])
    try:
        yield field
        for index in (0, 1):
            for tier, mem_type in (("DRAM", BmMemType.HOST), ("HBM", BmMemType.DEVICE)):
                seen = cluster.call(index, "load", index + 1, 0, SIZE, mem_type)
                assert seen == field.model[f"{index + 1} {tier}"].tobytes()
    finally:
        field.real.clear()  # arrays keep their memory mapped


NATIVE_LIST: Callable[[list[int]], Any] = lambda numbers: array.array("Q", numbers)  # noqa: E731
CONTAINERS: list[Any] = [list, tuple, np.uint64, np.int64, NATIVE_LIST]


def as_container(kind: Any) -> Callable[[list[int]], Any]:
    return (lambda numbers: np.array(numbers, kind)) if isinstance(kind, type) and kind not in (list, tuple) else kind


def test_every_type_between_every_pair_of_places(field: Field) -> None:
    choose = random.Random(2)
    for copy_type, pairs in PAIRS.items():
        for source, target in pairs:
            size = choose.choice((1, 7, 64, 4096, 40_000))
            source_at, target_at = choose.randrange(HALF - size), HALF + choose.randrange(HALF - size)
            field.copy(source, source_at, target, target_at, size, copy_type)
            field.copy(source, source_at + 1, target, target_at, size - 1 or 1, copy_type, 1)
            field.wait()  # what follows is not ordered with it
            pieces = [(choose.randrange(HALF - 900), HALF + 1000 * i + choose.randrange(90), 900) for i in range(20)]
            field.batch(source, target, pieces, list, copy_type)
            field.rectangle(source, target, (100, 130), 90, 50, copy_type)
            field.check(target)
    assert mf.get_last_err_msg() == "", "success leaves no last error"


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
    pairs = st.sampled_from(PAIRS[copy_type])
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
    np.testing.assert_array_equal(field.real["2 DRAM"][HALF : HALF + size], field.real[PLAIN][:size])


def test_batch_is_checked_as_a_whole_before_the_first_byte_moves(field: Field) -> None:
    good, target = field.address(PLAIN, 0), field.address("1 DRAM", HALF)
    beyond = field.pool.peer_rank_ptr(1, BmMemType.HOST) + SIZE - 5
    code = field.pool.copy_data_batch([good, good], [target, beyond], [100, 6], 2, BmCopyType.H2G)
    assert code == -2000
    field.check("1 DRAM")


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
