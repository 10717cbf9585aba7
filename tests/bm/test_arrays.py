"""Arrays on the memory of ranks: no copies, and never a dangling pointer."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, errors
from memfabric_hybrid.bm import BigMemory, BmMemType
from support import pool_worker
from support.pool_worker import MIB
from support.workers import Cluster


@pytest.fixture
def cluster(store_url: str, workers: Any) -> Iterator[Cluster]:
    """This process is rank 0, the worker rank 1."""
    assert pool_worker.take_part(store_url, 4, dram=4 * MIB, hbm=2 * MIB) == 0
    with workers(1) as cluster:
        assert cluster.call(0, "take_part", store_url, 4, dram=4 * MIB, hbm=2 * MIB) == 1
        yield cluster


def pool() -> BigMemory:
    return pool_worker.pools[0]


def test_stores_are_seen_by_the_owner_and_loads_see_the_owner(cluster: Cluster) -> None:
    array = pool().array(1, (3, 4), np.float32, offset=16)
    array[1, 2] = 2.5
    assert cluster.call(0, "load", 1, 16 + 6 * 4, 4) == np.float32(2.5).tobytes()
    cluster.call(0, "store", 1, 16, np.float32(-1).tobytes())
    assert array[0, 0] == -1
    assert array.flags.writeable
    assert array.ctypes.data == pool().peer_rank_ptr(1, BmMemType.HOST) + 16


@pytest.mark.parametrize("shape", [8, (8,), [2, 4], (2, 2, 2), np.int64(8), ()])
@pytest.mark.parametrize("dtype", ["u1", np.float64, "complex64", [("a", "i4"), ("b", "f4")]])
def test_shapes_and_types(cluster: Cluster, shape: Any, dtype: Any) -> None:
    array = pool().array(1, shape, dtype)
    assert array.shape == np.empty(shape, np.dtype(dtype)).shape
    assert array.dtype == np.dtype(dtype)


def test_whole_memory_and_nothing(cluster: Cluster) -> None:
    assert pool().array(1, 4 * MIB, "u1").size == 4 * MIB
    assert pool().array(1, 0, "u1").size == 0
    assert pool().array(1, 0, "u1", offset=4 * MIB).size == 0
    assert pool().array(rank=1, shape=2 * MIB, dtype="u1", offset=0, mem_type=BmMemType.DEVICE).size == 2 * MIB


def test_array_shows_the_last_bytes_of_the_dead(cluster: Cluster) -> None:
    cluster.call(0, "store", 1, 0, b"last words")
    array = pool().array(1, 10, "u1")
    cluster.kill(0)
    pool_worker.wait_for_view([0])
    assert bytes(array) == b"last words"
    array[:] = 0
    with pytest.raises(errors.NotConnected, match="rank 1"):
        pool().array(1, 10, "u1")


def test_array_outlives_leave_and_destroy_and_uninitialize(cluster: Cluster) -> None:
    own, other = pool().array(0, 10, "u1"), pool().array(1, 10, "u1")
    own[:], other[:] = 1, 2
    part = other[2:5]
    cluster.call(0, "call", "leave")
    assert (other == 2).all()
    pool().destroy()
    bm.uninitialize()
    del other
    gc.collect()
    assert (own == 1).all()
    assert (part == 2).all(), "a slice keeps the memory as well"


def test_rank_that_comes_back_brings_new_memory(cluster: Cluster, store_url: str) -> None:
    """The old array must not break anything; what it shows is one of the two lives."""
    old = pool().array(1, 4, "u1")
    old[:] = 7
    for life in range(3):
        cluster.kill(0)
        pool_worker.wait_for_view([0])
        cluster.start(0)
        assert cluster.call(0, "take_part", store_url, 4, dram=4 * MIB, hbm=2 * MIB) == 1
        cluster.call(0, "store", 1, 0, bytes([life]) * 4)
        assert pool_worker.read(1, 0, 4) == (0, bytes([life]) * 4)
        assert bytes(pool().array(1, 4, "u1")) == bytes([life]) * 4
        assert bytes(old) in (b"\7" * 4, bytes([life]) * 4)


def test_numpy_works_on_it_and_copies_take_it(cluster: Cluster) -> None:
    array = pool().array(1, 1000, np.int64)
    array[:] = np.arange(1000)
    target = np.zeros(1000, np.int64)
    assert pool().copy_data(array.ctypes.data, target.ctypes.data, 8000, bm.BmCopyType.G2H) == 0
    assert target.sum() == 499_500
    assert mf.get_last_err_msg() == ""


def test_many_arrays_come_and_go(cluster: Cluster) -> None:
    for _ in range(2000):
        pool().array(1, 100, "u1", offset=50)[0] = 1
    cluster.call(0, "call", "leave")
    with pytest.raises(errors.NotConnected):
        pool().array(1, 1, "u1")
