"""The object itself: addresses, arrays, contexts, exits, values, and what misuse returns."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, errors, shm
from support.workers import Cluster

Ranks = Callable[..., AbstractContextManager[Cluster]]
MIB = 1 << 20


@pytest.mark.parametrize("count", [2, 3])
def test_everybody_reaches_everybodys_memory(ranks: Ranks, count: int) -> None:
    with ranks(count) as cluster:
        for rank in range(count):
            cluster.call(rank, "store_bytes", (rank + 1) % count, 100, f"from {rank}".encode())
        for rank in range(count):
            left = (rank - 1) % count
            assert cluster.call(rank, "load_bytes", rank, 100, len(f"from {left}")) == f"from {left}".encode()
        assert cluster.call(0, "call", "reach", count - 1) == (3, "")
        assert cluster.call(0, "call", "topology_can_reach", count - 1, 0) == (0, "")
        code, why = cluster.call(0, "call", "topology_can_reach", count, 0)
        assert code == -2000
        assert f"expected 0..{count - 1}" in why


def test_properties(heap: shm.ShareMemory) -> None:
    assert (heap.local_rank, heap.rank_size, heap.symmetric_size) == (0, 1, 4 * MIB)
    assert heap.gva % (2 * MIB) == 0
    assert heap.query_support_data_operation() == shm.ShmDataOpType.MTE
    assert "rank 0 of 1" in repr(heap)
    assert not hasattr(heap, "copy_data")


def test_closed_handle(heap: shm.ShareMemory) -> None:
    assert heap.destroy() == 0
    assert (heap.local_rank, heap.rank_size, heap.gva, heap.symmetric_size) == (4294967295, 0, 0, 0)
    calls: list[Callable[[], Any]] = [
        heap.destroy,
        heap.barrier,
        lambda: heap.set_context(b"x"),
        lambda: heap.topology_can_reach(0, 0),
        lambda: heap.subgroup_barrier("k", 1, 0),
        lambda: heap.atomic_alloc_value(1),
        lambda: heap.atomic_release_value(0),
        lambda: heap.register_exit(print),
        lambda: heap.global_exit(1),
    ]
    for call in calls:
        mf.get_and_clear_last_err_msg()
        assert call() == -2000
        assert "shm object 0 is destroyed" in mf.get_last_err_msg()
    assert heap.reach(0) == 0
    for gather in (lambda: heap.all_gather(b"x"), lambda: heap.subgroup_all_gather("k", 1, 0, b"x")):
        with pytest.raises(RuntimeError, match="is destroyed"):
            gather()


def test_arrays_are_the_memory(ranks: Ranks, store_url: str) -> None:
    config = shm.ShmConfig()
    with Cluster(1, "support.heap_worker", environment={}) as cluster:
        other = cluster.begin(0, "take_part", store_url, 2)  # rank 0, runs the store
        assert shm.initialize(store_url, 2, 1, 0, config) == 0, mf.get_last_err_msg()
        heap = shm.create(0, 2, 1, 2 * MIB)
        assert other.result() == heap.gva
        matrix = heap.array(0, (10, 20), np.float32, offset=64)
        matrix[3, 4] = 1.5
        assert cluster.call(0, "load_bytes", 0, 64 + 4 * (3 * 20 + 4), 4) == np.float32(1.5).tobytes()
        assert heap.array(1, 0, np.int8, offset=2 * MIB).size == 0
        for arguments, reason in (
            ((2, 1, np.int8), "expected 0..1"),
            ((0, 2 * MIB + 1, np.int8), "beyond the 2097152 bytes"),
            ((0, 1, np.int8, 2 * MIB), "beyond the 2097152 bytes"),
            ((0, 1, object), "dtype is object: Python objects mean nothing"),
            ((0, -1, np.int8), "expected sides of 0 or more"),
        ):
            with pytest.raises(ValueError, match=reason):
                heap.array(*arguments)
        cluster.kill(0)
        while heap.reach(0):
            heap.barrier()
        with pytest.raises(errors.NotConnected, match="rank 0 of shm object 0 is gone"):
            heap.array(0, 1, np.int8)
        assert matrix[3, 4] == 1.5
        assert heap.destroy() == 0
        del matrix
        gc.collect()


def test_contexts(heap: shm.ShareMemory) -> None:
    assert heap.set_context(b"x") == 0
    assert heap.set_context(b"x" * 65536) == 0
    for wrong in (b"", b"x" * 65537):
        assert heap.set_context(wrong) == -2000
        assert f"the context has {len(wrong)} bytes, expected 1..65536" in mf.get_last_err_msg()
    with pytest.raises(TypeError):
        heap.set_context("text")  # type: ignore[arg-type]


def test_gathers_validate_their_data(heap: shm.ShareMemory) -> None:
    assert heap.all_gather(b"x" * 65536) == b"x" * 65536
    for wrong in (b"", b"x" * 65537):
        with pytest.raises(RuntimeError, match=rf"all_gather failed: .*{len(wrong)} bytes, expected 1 to 65536"):
            heap.all_gather(wrong)
        assert "expected 1 to 65536" in mf.get_last_err_msg()
        with pytest.raises(RuntimeError, match=f"{len(wrong)} bytes, expected 1 to 65536"):
            heap.subgroup_all_gather("k", 1, 0, wrong)
    for gather in (lambda: heap.all_gather("x"), lambda: heap.subgroup_all_gather("k", 1, 0, "x")):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            gather()


def test_exits_reach_every_rank(ranks: Ranks) -> None:
    with ranks(3) as cluster:
        assert cluster.call_all("record_exits") == [0, 0, 0]
        assert cluster.call(1, "call", "global_exit", 7) == (0, "")
        assert cluster.call_all("wait_for_exits", 1) == [[7], [7], [7]]
        assert cluster.call(2, "call", "global_exit", -1) == (0, "")
        assert cluster.call_all("wait_for_exits", 2) == [[7, -1]] * 3


def test_values_are_the_lowest_free_ones(ranks: Ranks) -> None:
    with ranks(3) as cluster:
        assert sorted(value for value, _ in cluster.call_all("call", "atomic_alloc_value", 3)) == [0, 1, 2]
        code, why = cluster.call(0, "call", "atomic_alloc_value", 3)
        assert code == -2002
        assert "all 3 values are in use" in why
        holder = next(rank for rank in range(3) if cluster.call(rank, "call", "atomic_release_value", 1)[0] == 0)
        code, why = cluster.call(holder, "call", "atomic_release_value", 1)
        assert code == -2007
        assert "value 1 is not held" in why
        assert cluster.call(0, "call", "atomic_alloc_value", 9) == (1, "")
        assert cluster.call(0, "call", "atomic_alloc_value", 0)[0] == -2000


def test_values_of_the_dead_are_free_again(ranks: Ranks) -> None:
    with ranks(2) as cluster:
        assert cluster.call(1, "call", "atomic_alloc_value", 10) == (0, "")
        cluster.kill(1)
        deadline = time.monotonic() + 20
        while (value := cluster.call(0, "call", "atomic_alloc_value", 1)[0]) != 0 and time.monotonic() < deadline:
            assert value == -2002  # until the store has seen the death
        assert value == 0


def test_beside_big_memory(store_url: str, heap: shm.ShareMemory) -> None:
    config = bm.BmConfig()
    assert bm.initialize(store_url, 2, 0, config) == 0, mf.get_last_err_msg()
    with bm.create(0, 2 * MIB) as pool:
        assert pool.join() == 0
        assert heap.barrier() == 0
        assert pool.peer_rank_ptr(0, bm.BmMemType.HOST) != heap.gva
    bm.uninitialize()
    assert heap.barrier() == 0
    assert mf.get_last_err_msg() == ""


def test_handle_as_context_manager(heap: shm.ShareMemory) -> None:
    with heap:
        assert heap.barrier() == 0
    assert heap.barrier() == -2000
    again = shm.create(0, 1, 0, 2 * MIB)
    assert again.destroy() == 0


def test_forked_child_has_no_part_in_it(heap: shm.ShareMemory) -> None:
    import os

    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, f"{heap.barrier()} {mf.get_last_err_msg()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert os.read(read, 1000).startswith(b"-2008 shm object 0: this process was forked")
    os.close(read)
    assert heap.barrier() == 0
