"""Bad input to copies: -2000 (or -2014, -2003) at once, nothing written, a sentence with the address and the limit."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType
from support import pool_worker
from support.pool_worker import MIB

HOST, DEVICE = BmMemType.HOST, BmMemType.DEVICE
DRAM_SIZE, HBM_SIZE = 4 * MIB, 2 * MIB  # of `pool`; the slots are 8 and 4 MiB
ALL_TYPES = list(BmCopyType)


@pytest.fixture
def plain() -> Iterator[int]:
    buffer = ctypes.create_string_buffer(8 * MIB)
    yield ctypes.addressof(buffer)
    del buffer


def refused(code: int, expected: int, *named: str) -> None:
    assert code == expected
    sentence = mf.get_and_clear_last_err_msg()
    for part in named:
        assert part in sentence, sentence


def copy_every_way(pool: BigMemory, source: int, target: int, size: int, copy_type: int) -> Iterator[int]:
    """The codes of the same copy as one piece, queued, as a batch and as a rectangle of one row."""
    yield pool.copy_data(source, target, size, copy_type)
    yield pool.copy_data(source, target, size, copy_type, 1)
    yield pool.copy_data_batch([source], [target], [size], 1, copy_type)
    yield pool.copy_data_2d(source, size, target, size, size, 1, copy_type)


# ---- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mem_type", "size"), [(HOST, DRAM_SIZE), (DEVICE, HBM_SIZE)], ids=["DRAM", "HBM"])
def test_one_byte_outside_at_either_end(pool: BigMemory, plain: int, mem_type: int, size: int) -> None:
    start = pool.peer_rank_ptr(0, mem_type)
    inside = [(start, 1), (start + size - 1, 1), (start, size)]
    outside = [(start + size, 1), (start + size - 1, 2), (start, size + 1), (start + 1, size)]
    if mem_type is HOST:
        outside += [(start - 1, 2), (start - 1, size)]  # HBM follows DRAM: that side is another test's
    for address, length in inside:
        assert pool.copy_data(plain, address, length, BmCopyType.L2G) == 0
        assert pool.copy_data(address, plain, length, BmCopyType.G2L) == 0
    for address, length in outside:
        for code in copy_every_way(pool, plain, address, length, BmCopyType.L2G):
            refused(code, -2000, f"{address:#x}", str(length))
        for code in copy_every_way(pool, address, plain, length, BmCopyType.G2L):
            refused(code, -2000, f"{address:#x}", str(length))


def test_range_that_crosses_into_the_next_slot(pool: BigMemory, plain: int) -> None:
    next_slot = pool.peer_rank_ptr(1, HOST)
    refused(pool.copy_data(plain, next_slot - 1, 2, BmCopyType.L2G), -2000, f"{next_slot - 1:#x}", "rank 0")
    hbm = pool.peer_rank_ptr(0, DEVICE)
    refused(pool.copy_data(plain, hbm - 1, 2, BmCopyType.L2G), -2000, f"{hbm - 1:#x}", "rank 3")


def test_range_that_reaches_over_the_edge_of_the_pool(pool: BigMemory, plain: int) -> None:
    begin = pool.peer_rank_ptr(0, HOST)
    end = pool.peer_rank_ptr(3, DEVICE) + 4 * MIB
    for copy_type in ALL_TYPES:  # our own DRAM may be either side of all of them
        refused(pool.copy_data(begin - 5, begin, 10, copy_type), -2000, f"{begin - 5:#x}")
        refused(pool.copy_data(begin, begin - 5, 10, copy_type), -2000, f"{begin - 5:#x}")
    refused(pool.copy_data(end - 5, plain, 10, BmCopyType.G2L), -2000, f"{end - 5:#x}")
    refused(pool.copy_data(end, plain, 10, BmCopyType.G2L), -2000, f"{end:#x}")


@pytest.mark.parametrize("bad", [0, 1, 4096, (1 << 47) - 1, 1 << 47, (1 << 64) - 1])
def test_addresses_that_are_no_memory(pool: BigMemory, plain: int, bad: int) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    for code in copy_every_way(pool, bad, own, 2, BmCopyType.L2G):
        refused(code, -2000, f"{bad:#x}")
    for code in copy_every_way(pool, own, bad, 2, BmCopyType.G2L):
        refused(code, -2000, f"{bad:#x}")


@pytest.mark.parametrize("size", [0, (1 << 47), (1 << 64) - 1])
def test_sizes_that_are_none(pool: BigMemory, plain: int, size: int) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    for code in copy_every_way(pool, plain, own, size, BmCopyType.L2G):
        refused(code, -2000, str(size))


def test_rank_that_has_not_joined(pool: BigMemory, plain: int) -> None:
    for rank, mem_type in product((1, 3), (HOST, DEVICE)):
        there = pool.peer_rank_ptr(rank, mem_type)
        for code in copy_every_way(pool, plain, there, 8, BmCopyType.L2G):
            refused(code, -2014, f"rank {rank}", "has not joined")
        assert pool.gva_to_va(there) == 0
        assert f"{there:#x}" in mf.get_and_clear_last_err_msg()


def test_object_that_has_not_joined_or_has_left(store_url: str, plain: int) -> None:
    assert pool_worker.enter(store_url) == (0, "")
    pool_worker.create()
    pool = pool_worker.pools[0]
    own = pool.peer_rank_ptr(0, HOST)
    refused(pool.leave(), -2003, "not joined")
    for code in copy_every_way(pool, plain, own, 8, BmCopyType.L2G):
        refused(code, -2003, "join")
    refused(pool.wait(), -2003, "join")
    assert pool.join() == 0
    assert pool.leave() == 0
    for code in copy_every_way(pool, plain, own, 8, BmCopyType.L2G):
        refused(code, -2003, "left")
    refused(pool.wait(), -2003, "left")
    assert pool.peer_rank_ptr(0, HOST) == own, "numbers stay valid"
    refused(pool.leave(), -2003)


# ---- types ----------------------------------------------------------------------------------------------------------

# What each side may be. Plain memory is both L and H, our own DRAM is everything, our own HBM is local and global.
CLASSES = {
    "L": {"plain", "own DRAM", "own HBM"},
    "H": {"plain", "own DRAM"},
    "G": {"own DRAM", "own HBM"},
    "GH": {"own DRAM"},
}
PLACES = ("plain", "own DRAM", "own HBM")


@pytest.mark.parametrize("copy_type", ALL_TYPES[:9], ids=lambda copy_type: copy_type.name)
def test_wrong_class_on_either_side(pool: BigMemory, plain: int, copy_type: BmCopyType) -> None:
    places = {"plain": plain, "own DRAM": pool.peer_rank_ptr(0, HOST), "own HBM": pool.peer_rank_ptr(0, DEVICE)}
    wanted_source, wanted_target = copy_type.name.split("2")
    for source, target in product(PLACES, PLACES):
        allowed = source in CLASSES[wanted_source] and target in CLASSES[wanted_target]
        for code in copy_every_way(pool, places[source], places[target] + 4096, 16, copy_type):
            if allowed:
                assert code == 0, (source, target, mf.get_last_err_msg())
            else:
                wrong = source if source not in CLASSES[wanted_source] else target
                side = "source" if source not in CLASSES[wanted_source] else "target"
                at = places[wrong] + (4096 if side == "target" else 0)
                refused(code, -2000, side, copy_type.name, f"{at:#x}")
    assert pool.wait() == 0


def test_memory_of_another_rank_is_not_local(store_url: str, plain: int, workers: Any) -> None:
    pool_worker.take_part(store_url, 4, dram=2 * MIB, hbm=2 * MIB)
    pool = pool_worker.pools[0]
    with workers(1) as cluster:
        cluster.call(0, "take_part", store_url, 4, dram=2 * MIB, hbm=2 * MIB)
        own, other = pool.peer_rank_ptr(0, HOST), pool.peer_rank_ptr(1, HOST)
        for copy_type in (BmCopyType.L2G, BmCopyType.H2G, BmCopyType.L2GH, BmCopyType.H2GH):
            refused(pool.copy_data(other, own, 8, copy_type), -2000, "source", f"{other:#x}", "rank 1")
        for copy_type in (BmCopyType.G2L, BmCopyType.G2H, BmCopyType.GH2L, BmCopyType.GH2H):
            refused(pool.copy_data(own, other, 8, copy_type), -2000, "target", f"{other:#x}", "rank 1")


@pytest.mark.parametrize("copy_type", [10, 255, 4294967295])
def test_unknown_copy_type(pool: BigMemory, plain: int, copy_type: int) -> None:
    for code in copy_every_way(pool, plain, pool.peer_rank_ptr(0, HOST), 8, copy_type):
        refused(code, -2000, str(copy_type), "9 (AUTO)")


def test_auto_needs_a_global_side(pool: BigMemory, plain: int) -> None:
    for code in copy_every_way(pool, plain, plain + 100, 8, BmCopyType.AUTO):
        refused(code, -2000, f"{plain:#x}", f"{plain + 100:#x}")


def test_stream_must_exist(pool: BigMemory, plain: int) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    for stream in (0, 1, 12345, (1 << 64) - 1):
        refused(pool.copy_data(plain, own, 8, BmCopyType.L2G, 4, stream), -2000, str(stream), "stream")
    closed = mf.Stream()
    closed.close()
    refused(pool.copy_data(plain, own, 8, BmCopyType.L2G, 4, closed), -2000, "stream")


# ---- batches and rectangles -----------------------------------------------------------------------------------------


def test_unequal_lists_and_wrong_counts(pool: BigMemory, plain: int) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    ways = [([plain], [own, own], [8, 8], 2), ([plain] * 2, [own], [8, 8], 2), ([plain] * 2, [own] * 2, [8], 2),
            ([plain] * 2, [own] * 2, [8] * 2, 3), ([plain] * 2, [own] * 2, [8] * 2, 1)]  # fmt: skip
    for sources, targets, sizes, count in ways:
        code = pool.copy_data_batch(sources, targets, sizes, count, BmCopyType.L2G)
        refused(code, -2000, str(len(sources)), str(len(targets)), str(len(sizes)), str(count))


def test_batch_of_nothing(pool: BigMemory) -> None:
    refused(pool.copy_data_batch([], [], [], 0, BmCopyType.L2G), -2000, "0", "1048576")
    refused(pool.copy_data_batch([1], [1], [1], 0, BmCopyType.L2G), -2000, "0")


def test_batch_has_at_most_one_mebi_pieces(pool: BigMemory, plain: int) -> None:
    most = 1 << 20
    own = pool.peer_rank_ptr(0, HOST)
    offsets = np.arange(most, dtype=np.uint64)
    sources, targets, sizes = offsets + plain, offsets + own, np.ones(most, np.uint64)
    assert pool.copy_data_batch(sources, targets, sizes, most, BmCopyType.L2G) == 0
    one_more = [np.append(column, column[:1]) for column in (sources, targets, sizes)]
    refused(pool.copy_data_batch(*one_more, most + 1, BmCopyType.L2G), -2000, str(most + 1), str(most))


def test_bad_piece_anywhere_in_a_batch(pool: BigMemory, plain: int) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    for position in (0, 7, 15):
        targets = [own + 100 * i for i in range(16)]
        targets[position] = own + DRAM_SIZE
        code = pool.copy_data_batch([plain] * 16, targets, [8] * 16, 16, BmCopyType.L2G)
        which = f"piece {position} of 16 (counted from 0), 8 bytes from {plain:#x} to {own + DRAM_SIZE:#x}: "
        assert mf.get_last_err_msg().startswith(which)
        refused(code, -2000, "the target of 8 bytes", "does not lie in the DRAM of rank 0")
    assert pool.copy_data_batch([plain], [own], [8], 1, 10) == -2000
    assert "piece" not in mf.get_last_err_msg(), "what concerns the call is not blamed on a piece"


@pytest.mark.parametrize(
    ("spitch", "dpitch", "width", "height"),
    [(9, 10, 10, 2), (10, 9, 10, 2), (10, 10, 0, 2), (10, 10, 10, 0), (1 << 46, 10, 10, 4), (10, 1 << 63, 10, 2),
     (10, 10, 1 << 63, 2), (10, 10, 10, (1 << 64) - 1)],
)  # fmt: skip
def test_rectangles_that_are_none(
    pool: BigMemory, plain: int, spitch: int, dpitch: int, width: int, height: int
) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    code = pool.copy_data_2d(plain, spitch, own, dpitch, width, height, BmCopyType.L2G)
    refused(code, -2000, str(spitch), str(dpitch), str(width), str(height))


def test_rectangle_whose_last_byte_is_outside(pool: BigMemory, plain: int) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    rows = DRAM_SIZE // 4096
    assert pool.copy_data_2d(plain, 4096, own, 4096, 4096, rows, BmCopyType.L2G) == 0
    refused(pool.copy_data_2d(plain, 4096, own + 1, 4096, 4096, rows, BmCopyType.L2G), -2000, f"{own + 1:#x}")


# ---- argument types -------------------------------------------------------------------------------------------------

NO_NUMBERS: list[Any] = ["1", b"1", 1.0, None, -1, 1 << 64, [1], object()]


@pytest.mark.parametrize(
    "wrong", NO_NUMBERS, ids=lambda value: "object()" if type(value) is object else repr(value)[:20]
)
def test_wrong_argument_types_raise(pool: BigMemory, plain: int, wrong: Any) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    one: list[Any] = [plain, own, 8, BmCopyType.L2G, 0, 0]
    batch: list[Any] = [[plain], [own], [8], 1, BmCopyType.L2G, 0, 0]
    rectangle: list[Any] = [plain, 8, own, 8, 8, 1, BmCopyType.L2G, 0]
    for method, good in ((pool.copy_data, one), (pool.copy_data_batch, batch), (pool.copy_data_2d, rectangle)):
        for position in range(len(good)):
            if wrong in ([1], b"1") and isinstance(good[position], list):
                continue  # a list of numbers, or a buffer of them: as it should be
            arguments = [*good[:position], wrong, *good[position + 1 :]]
            name = list(inspect.signature(method).parameters)[position]
            with pytest.raises(TypeError, match=rf"^{method.__name__}\(\): {name} "):
                method(*arguments)
        with pytest.raises(TypeError, match=rf"^{method.__name__}\(\) misses the argument"):
            method(*good[:3])
        with pytest.raises(TypeError, match="got an unknown argument 'no_such_argument'"):
            method(*good, no_such_argument=1)
    for position in range(3):
        lists: list[Any] = [[plain], [own], [8]]
        lists[position] = [wrong]
        with pytest.raises(TypeError):
            pool.copy_data_batch(*lists, 1, BmCopyType.L2G)
    for method in (pool.get_rank_id_by_gva, pool.gva_to_va, pool.unregister, pool.peer_rank_ptr):
        with pytest.raises(TypeError):
            method(wrong)
    assert mf.get_last_err_msg() == ""


@pytest.mark.parametrize(
    "column",
    [np.array([1.0]), np.array([[1]]), np.array(["1"]), np.array([True]), {1}, {1: 1}, "1", np.array([1], ">u8")],
    ids=lambda column: repr(column)[:40],
)  # fmt: skip
def test_columns_that_are_no_list_of_numbers(pool: BigMemory, column: Any) -> None:
    with pytest.raises(TypeError, match=r"^copy_data_batch\(\): src_addrs must be a .*integer"):
        pool.copy_data_batch(column, [1], [1], 1, BmCopyType.L2G)


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.uint16])
def test_columns_of_a_table_are_taken_as_they_are(pool: BigMemory, plain: int, kind: type) -> None:
    """Arrays with gaps: one column of a table, every second item, backwards."""
    own, count = pool.peer_rank_ptr(0, HOST), 6
    ctypes.memmove(plain, bytes(range(1, 7)), count)
    table = np.zeros((count, 3), np.int64)
    table[:, 0], table[:, 1] = plain + np.arange(count), own + np.arange(count)
    sizes = np.ones(2 * count, kind)[::2]
    assert pool.copy_data_batch(table[:, 0], table[::-1, 1], sizes, count, BmCopyType.L2G) == 0, mf.get_last_err_msg()
    assert ctypes.string_at(own, count) == bytes(range(6, 0, -1))


def test_negative_numbers_in_an_array_are_refused(pool: BigMemory, plain: int) -> None:
    own = pool.peer_rank_ptr(0, HOST)
    for kind in (np.int64, np.int32, np.int8):
        code = pool.copy_data_batch([plain], [own], np.array([-1], kind), 1, BmCopyType.L2G)
        assert code == -2000
