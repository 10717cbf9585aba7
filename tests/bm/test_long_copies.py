"""A copy that takes long holds up nobody who has nothing to do with its memory: not a death, not another object.

The long copy stands still in the middle, as if its memory were endlessly slow. Who does need its memory waits alone,
with neither the pool nor the interpreter in hand.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import _native
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType, runtime
from memfabric_hybrid.errors import InvalidParam
from support import campaigns, pause_points, pool_worker
from support.pool_worker import MIB
from support.threads import Beside, wait_until
from support.workers import Cluster

LONG = 40 * MIB  # more than a copy moves between two looks at who is gone
MOST = LONG + 2 * MIB


class LongCopy:
    """Stands between its first and its second chunk until it is told to go on."""

    def __init__(self, point: pause_points.Point, pool: BigMemory, rank: int) -> None:
        self.codes: list[int] = []
        self._point = point
        self._plain = ctypes.create_string_buffer(LONG)
        place = pool.peer_rank_ptr(rank, BmMemType.HOST)
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
    pool_worker.take_part(store_url, 4, dram=LONG, max_dram_size=MOST)
    with pause_points.held("space.copy.between_chunks") as point:
        copy = LongCopy(point, pool_worker.pools[0], pool_worker.rank())
        yield copy
        copy.finish()


def test_deaths_are_noticed(
    store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]], long_copy: LongCopy
) -> None:
    pool = pool_worker.pools[0]
    byte = ctypes.create_string_buffer(1)
    with workers(2) as cluster:
        ranks = cluster.call_all("take_part", store_url, 4, dram=LONG, max_dram_size=MOST)
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


def test_memory_of_the_dead_goes_and_its_successor_comes(
    store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]], long_copy: LongCopy
) -> None:
    pool = pool_worker.pools[0]
    with workers(1) as cluster:
        [rank] = cluster.call_all("take_part", store_url, 4, dram=LONG, max_dram_size=MOST)
        cluster.kill(0)
        wait_until(lambda: not pool._is_live(rank))
        wait_until(pool._collect)
        cluster.start(0)
        assert cluster.call(0, "take_part", store_url, 4, dram=LONG, max_dram_size=MOST) == rank
        place = pool.peer_rank_ptr(rank, BmMemType.HOST)
        word = ctypes.create_string_buffer(b"welcome")
        assert pool.copy_data(ctypes.addressof(word), place, 7, BmCopyType.H2G) == 0, mf.get_last_err_msg()
        cluster.kill(0)
    assert long_copy.finish() == 0


def test_other_objects_come_and_go(long_copy: LongCopy) -> None:
    pool_worker.create(1)
    pool_worker.pools[1].destroy()
    pool_worker.create(1)  # at the same addresses
    assert long_copy.finish() == 0


def test_nobody_waits_for_the_copy_with_the_pool_in_hand(
    store_url: str,
    workers: Callable[[int], AbstractContextManager[Cluster]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A successor's memory waits until the copy has left its predecessor's. A call that asked for it waits; the
    exchange, which was asked, does not, and sees another death. Nothing is written to the successor."""
    pool_worker.take_part(store_url, 4, dram=LONG, max_dram_size=MOST)
    pool = pool_worker.pools[0]
    waiting, drain = set(), pool._drain

    def seen_drain(rank: int) -> None:
        waiting.add(threading.get_ident())
        drain(rank)

    with workers(2) as cluster, pause_points.held("space.copy.between_chunks") as point:
        rank, doomed = cluster.call_all("take_part", store_url, 4, dram=LONG, max_dram_size=MOST)
        copy = LongCopy(point, pool, rank)
        cluster.kill(0)
        wait_until(lambda: not pool._is_live(rank))
        assert not pool._collect()
        monkeypatch.setattr(pool, "_drain", seen_drain)
        cluster.start(0)
        joining = cluster.begin(0, "take_part", store_url, 4, dram=LONG, max_dram_size=MOST)
        wait_until(lambda: runtime.current_node().exchange.awaits_news)
        extending = Beside(lambda: pool.extend_local_mem(BmMemType.HOST, 2 * MIB))
        wait_until(lambda: len(waiting) == 1)
        assert "joined" in Beside(lambda: repr(pool)).result()
        cluster.kill(1)
        wait_until(lambda: not pool._is_live(doomed))
        assert copy.finish() == -2014
        assert extending.result() == 0, mf.get_last_err_msg()
        assert joining.result() == rank
        cluster.kill(0)


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("batch", [False, True])
def test_rank_that_is_killed_while_it_is_read_leaves_an_undefined_target(
    store_url: str, workers: Callable[[int], AbstractContextManager[Cluster]], chunks: int, batch: bool
) -> None:
    """Bytes have arrived in the local target, some or all: that is -2012, though the rank is gone."""
    pool_worker.take_part(store_url, 4, dram=LONG, max_dram_size=MOST)
    pool = pool_worker.pools[0]
    with workers(1) as cluster, pause_points.held("space.copy.between_chunks") as point:
        rank = cluster.call(0, "take_part", store_url, 4, dram=LONG, max_dram_size=MOST)
        cluster.call(0, "store", rank, 0, b"rank")
        target = ctypes.create_string_buffer(LONG)
        source, here = pool.peer_rank_ptr(rank, BmMemType.HOST), ctypes.addressof(target)

        def read() -> tuple[int, str]:
            if batch:
                code = pool.copy_data_batch([source], [here], [LONG], 1, BmCopyType.G2H)
            else:
                code = pool.copy_data(source, here, LONG, BmCopyType.G2H)
            return code, mf.get_last_err_msg()

        reading = Beside(read)
        point.wait_until_reached()
        if chunks == 2:
            point.let_pass()
            point.wait_until_reached()
        cluster.kill(0)
        wait_until(lambda: not pool._is_live(rank))
        point.release()
        code, sentence = reading.result()
    assert target.raw[:4] == b"rank"
    assert code == -2012, sentence
    assert f"rank {rank} cannot be reached: it" in sentence
    assert f"the target of {LONG} bytes at {here:#x} may have been overwritten in part" in sentence
    assert sentence.startswith("piece 0 of 1 (counted from 0), ") is batch


@pytest.fixture
def reader(store_url: str) -> Iterator[Beside[int]]:
    """A transfer of this process that stands inside a read guard, which nobody can take memory away under."""
    pool_worker.take_part(store_url, 4, dram=2 * MIB, max_dram_size=MOST)
    with mf.TransferEngine() as engine, pause_points.held("transfer.map_segment") as point:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        memory = engine.trans_malloc(MIB)
        byte = ctypes.create_string_buffer(1)
        transfer = Beside(lambda: engine.transfer_sync_write(engine.session_id, ctypes.addressof(byte), memory, 1))
        point.wait_until_reached()
        yield transfer
        point.release()
        assert transfer.result() == 0, mf.get_last_err_msg()


def is_closed(pool: BigMemory) -> bool:
    try:
        pool._revoke(pool.capacity - 1, "nobody is there")
    except InvalidParam:
        return True
    return False


def test_object_ends_without_the_interpreter(reader: Beside[int]) -> None:
    """Who waits for readers does so alone. Should it keep the interpreter, the loops below would never end."""
    pool_worker.create(1)
    pool = pool_worker.pools[1]
    array = pool.array(pool_worker.rank(), 8, "u1")
    closing = Beside(pool.destroy)
    wait_until(lambda: is_closed(pool))
    array[:] = 7
    begun: list[object] = []
    last_sight = weakref.ref(array, begun.append)  # no Python code: nothing else runs before the memory is given back
    dropped = [array]
    del array
    dropping = Beside(dropped.clear)  # the last one gives the addresses back
    wait_until(lambda: bool(begun))
    assert last_sight() is None
    assert closing.runs
    assert dropping.runs
    assert reader.runs


class Forgotten(_native.Space):
    """One that nobody has closed; of Python, so that its end can be seen."""


def test_object_that_nobody_closed_ends_without_the_interpreter(reader: Beside[int]) -> None:
    begun: list[object] = []
    space = Forgotten(pool_worker.pools[0].base + (1 << 40), 1, 2 * MIB, 0, 0, "a forgotten object")
    last_sight = weakref.ref(space, begun.append)
    dropped = [space]
    del space
    dropping = Beside(dropped.clear)
    wait_until(lambda: bool(begun))
    assert last_sight() is None
    assert dropping.runs
    assert reader.runs
