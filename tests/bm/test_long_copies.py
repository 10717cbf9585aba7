"""A copy that takes long holds up nobody: not the news of a death, not another object, not the interpreter.

The long copy stands still in the middle, as if its memory were endlessly slow.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType
from support import campaigns, pause_points, pool_worker
from support.pool_worker import MIB
from support.workers import Cluster

LONG = 40 * MIB  # more than a copy moves between two looks at who is gone


class LongCopy:
    """Stands between its first and its second chunk until it is told to go on."""

    def __init__(self, point: pause_points.Point, pool: BigMemory) -> None:
        self.codes: list[int] = []
        self._point = point
        self._plain = ctypes.create_string_buffer(LONG)
        place = pool.peer_rank_ptr(pool_worker.rank(), BmMemType.HOST)
        source = ctypes.addressof(self._plain)
        self._thread = threading.Thread(
            target=lambda: self.codes.append(pool.copy_data(source, place, LONG, BmCopyType.H2G))
        )
        self._thread.start()
        point.wait_until_reached()

    def finish(self) -> int:
        self._point.release()
        self._thread.join()
        return self.codes[0]


@pytest.fixture
def long_copy(store_url: str) -> Iterator[LongCopy]:
    """Of this process, rank 0, inside its own memory."""
    pool_worker.take_part(store_url, 4, dram=LONG)
    with pause_points.held("space.copy.between_chunks") as point:
        copy = LongCopy(point, pool_worker.pools[0])
        yield copy
        copy.finish()


def test_deaths_are_noticed(
    store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]], long_copy: LongCopy
) -> None:
    pool = pool_worker.pools[0]
    byte = ctypes.create_string_buffer(1)
    with workers(2) as cluster:
        ranks = cluster.call_all("take_part", store_url, 4, dram=LONG)
        for index, rank in enumerate(ranks):
            place = pool.peer_rank_ptr(rank, BmMemType.HOST)
            copy = (ctypes.addressof(byte), place, 1, BmCopyType.H2G)
            assert pool.copy_data(*copy) == 0, mf.get_last_err_msg()
            cluster.kill(index)
            until = time.monotonic() + campaigns.notice_s()
            while (code := pool.copy_data(*copy)) == 0 and time.monotonic() < until:
                pass
            assert code == -2014, f"rank {rank} is dead, and copies to it return {code}"
        cluster.start(0)
        assert cluster.begin(0, "enter", store_url, 4).result() == (0, "")  # others come and go
    assert long_copy.finish() == 0


def test_memory_of_the_dead_goes_when_the_copy_is_over(
    store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]], long_copy: LongCopy
) -> None:
    pool = pool_worker.pools[0]
    with workers(1) as cluster:
        [rank] = cluster.call_all("take_part", store_url, 4, dram=LONG)
        cluster.kill(0)
        until = time.monotonic() + campaigns.notice_s()
        while pool._is_live(rank) and time.monotonic() < until:
            pass
        assert not pool._collect()
        assert long_copy.finish() == 0
        assert pool._collect()


def test_successor_gets_its_place_when_the_copy_is_over(
    store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]], long_copy: LongCopy
) -> None:
    pool = pool_worker.pools[0]
    with workers(1) as cluster:
        [rank] = cluster.call_all("take_part", store_url, 4, dram=LONG)
        cluster.kill(0)
        cluster.start(0)
        joining = cluster.begin(0, "take_part", store_url, 4, dram=LONG)
        assert long_copy.finish() == 0
        assert joining.result() == rank
        place = pool.peer_rank_ptr(rank, BmMemType.HOST)
        word = ctypes.create_string_buffer(b"welcome")
        assert pool.copy_data(ctypes.addressof(word), place, 7, BmCopyType.H2G) == 0, mf.get_last_err_msg()
        cluster.kill(0)


def test_other_objects_come_and_go(long_copy: LongCopy) -> None:
    pool_worker.create(1)
    array = pool_worker.pools[1].array(pool_worker.rank(), 8, "u1")
    closing = threading.Thread(target=pool_worker.pools[1].destroy)  # waits for running copies, alone
    closing.start()
    array[:] = 7
    dropped = [array]
    del array
    dropping = threading.Thread(target=dropped.clear)  # the last one gives the addresses back
    dropping.start()
    assert sum(range(100)) == 4950  # nobody sits on the interpreter
    assert long_copy.finish() == 0
    closing.join()
    dropping.join()
    pool_worker.create(1)  # at the same addresses
