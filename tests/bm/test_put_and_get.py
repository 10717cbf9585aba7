"""The pool for programs that like exceptions: bytes by rank and offset, and who is there."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from memfabric_hybrid import bm, errors
from support import pool_worker
from support.workers import Cluster

MIB = 1 << 20


def test_bytes_go_to_another_rank_and_come_back(store_url: str, workers: Any) -> None:
    with workers(2) as cluster:
        cluster.call(0, "take_part", store_url, 2)
        cluster.call(1, "take_part", store_url, 2, settings={"start_store": False})
        cluster.call(0, "put_and_get", 1)


SOURCES = [
    b"12345678",
    bytearray(b"12345678"),
    memoryview(b"12345678"),
    np.arange(8, dtype=np.uint8),
    np.ones((2, 2), "f2"),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda one: f"{type(one).__name__} of {memoryview(one).format}")
def test_any_contiguous_buffer(pool: bm.BigMemory, source: Any) -> None:
    pool.put(source, 0, 100)
    assert pool.get(0, 100, out=bytearray(8)) == memoryview(source).tobytes()


def test_tensors_of_torch(pool: bm.BigMemory) -> None:
    tensor = torch.arange(16, dtype=torch.bfloat16)
    pool.put(tensor, 0)
    assert torch.equal(pool.get(0, out=torch.zeros(16, dtype=torch.bfloat16)), tensor)


def test_both_tiers(pool: bm.BigMemory) -> None:
    pool.put(b"dram", 0)
    pool.put(b"hbm!", 0, mem_type=bm.BmMemType.DEVICE)
    assert pool.get(0, out=bytearray(4)) == b"dram"
    assert pool.get(0, mem_type=bm.BmMemType.DEVICE, out=bytearray(4)) == b"hbm!"


def test_what_does_not_fit_is_refused_and_nothing_changes(pool: bm.BigMemory) -> None:
    before = bytes(pool.array(0, 4 * MIB, "u1"))
    with pytest.raises(
        ValueError, match=f"offset {4 * MIB - 3} \\+ 4 bytes is beyond the {4 * MIB} bytes DRAM of rank 0"
    ):
        pool.put(b"1234", 0, 4 * MIB - 3)
    with pytest.raises(ValueError, match=r"rank 9 is outside 0..3"):
        pool.put(b"1234", 9)
    with pytest.raises(errors.NotConnected, match="bm object 0: rank 1 has not joined"):
        pool.put(b"1234", 1)
    with pytest.raises(ValueError, match="contiguous"):
        pool.put(np.arange(10)[::2], 0)
    with pytest.raises(ValueError, match=r"read-only, and get\(\) writes into it"):
        pool.get(0, out=b"1234")
    with pytest.raises(TypeError, match="source must be a buffer or a tensor, not float"):
        pool.put(1.0, 0)
    assert bytes(pool.array(0, 4 * MIB, "u1")) == before


def test_a_destroyed_pool_says_so(pool: bm.BigMemory) -> None:
    pool.destroy()
    for call in (lambda: pool.put(b"x", 0), lambda: pool.get(0, out=bytearray(1)), lambda: pool.ranks, pool.wait_for):
        with pytest.raises(ValueError, match="bm object 0 is destroyed: the handle is closed"):
            call()


def test_waiting_for_ranks_that_come_and_for_those_that_do_not(pool: bm.BigMemory, store_url: str) -> None:
    pool.wait_for([0])
    assert pool.ranks == [0]
    with pytest.raises(errors.TimedOut, match=r"2 of 3 ranks did not come within 0.05 s: 1, 2"):
        pool.wait_for([0, 1, 2], timeout=0.05)
    with pytest.raises(ValueError, match="rank 4 is outside"):
        pool.wait_for([4])
    for never in (float("nan"), -1, -float("inf")):
        with pytest.raises(ValueError, match=f"timeout is {never} s, expected 0 or more"):
            pool.wait_for([1], timeout=never)
    pool.wait_for([0], timeout=float("inf"))
    with Cluster(3, "support.pool_worker") as others:
        entering = [
            others.begin(index, "take_part", store_url, 4, settings={"start_store": False},
                         dram=4 * MIB, max_dram_size=8 * MIB, hbm=2 * MIB, max_hbm_size=4 * MIB)
            for index in range(3)
        ]  # fmt: skip
        pool.wait_for(timeout=30)
        assert pool.ranks == [0, 1, 2, 3]
        for call in entering:
            call.result()


def test_who_leaves_waits_for_nobody(pool: bm.BigMemory) -> None:
    assert pool.leave() == 0
    with pytest.raises(errors.NotStarted, match="call join"):
        pool.wait_for([0])
    assert pool.join() == 0
    leaving = threading.Timer(0.1, pool.leave)
    leaving.start()
    with pytest.raises(errors.NotStarted):
        pool.wait_for([1], timeout=30)
    leaving.join()
    assert pool_worker.pools[0] is pool
