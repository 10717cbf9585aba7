"""A transfer that takes long is cut into chunks, and holds up nobody between two of them or inside one."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from support import campaigns, pause_points
from support.threads import Beside
from support.workers import Cluster

MIB = 1 << 20
LONG = 300 * MIB  # more than two chunks
STEP = 1 * MIB


@pytest.fixture
def memory() -> Iterator[int]:
    """Much memory that takes little: pages come when they are touched."""
    mapped = mmap.mmap(-1, LONG)
    number = ctypes.c_char.from_buffer(mapped)
    yield ctypes.addressof(number)
    del number
    mapped.close()


def stamp(address: int, size: int) -> None:
    for offset in range(0, size, STEP):
        ctypes.c_uint64.from_address(address + offset).value = offset + 1


def stamped(address: int, size: int) -> bool:
    return all(ctypes.c_uint64.from_address(address + offset).value == offset + 1 for offset in range(0, size, STEP))


@pytest.mark.parametrize("cuts", [[LONG], [LONG // 2 - 4096, 4096, LONG // 2], [100 * MIB, 28 * MIB, LONG - 128 * MIB]])
@pytest.mark.parametrize("kind", ["private", "arena"])
def test_all_bytes_arrive(engine: mf.TransferEngine, memory: int, cuts: list[int], kind: str) -> None:
    target = mmap.mmap(-1, LONG)
    if kind == "arena":
        there = engine.trans_malloc(LONG)
        assert there, mf.get_last_err_msg()
    else:
        there = ctypes.addressof(ctypes.c_char.from_buffer(target))
        assert engine.register_memory(there, LONG) == 0, mf.get_last_err_msg()
    stamp(memory, LONG)
    starts = [sum(cuts[:index]) for index in range(len(cuts))]
    here, far = [memory + start for start in starts], [there + start for start in starts]
    assert engine.batch_transfer_sync_write(engine.session_id, here, far, cuts) == 0, mf.get_last_err_msg()
    assert stamped(there, LONG)
    ctypes.memset(memory, 0, LONG)
    assert engine.batch_transfer_sync_read(engine.session_id, here, far, cuts) == 0, mf.get_last_err_msg()
    assert stamped(memory, LONG)


def test_nothing_moves_if_a_late_piece_is_wrong(engine: mf.TransferEngine, memory: int) -> None:
    with mmap.mmap(-1, LONG) as target:
        there = ctypes.addressof(ctypes.c_char.from_buffer(target))
        assert engine.register_memory(there, LONG - 4096) == 0, mf.get_last_err_msg()
        ctypes.c_char.from_address(memory).value = b"x"
        pieces = ([memory, memory + LONG - 4096], [there, there + LONG - 4096], [LONG - 4096, 4096])
        assert engine.batch_transfer_sync_write(engine.session_id, *pieces) == -2000
        assert target[0] == 0


READ = 130 * MIB  # two chunks


@pytest.mark.parametrize("kind", ["arena", "private"])
@pytest.mark.parametrize("chunks", [1, 2])
def test_peer_that_is_killed_during_a_read_leaves_an_undefined_buffer(
    engine: mf.TransferEngine,
    memory: int,
    workers: Callable[[int], AbstractContextManager[Cluster]],
    kind: str,
    chunks: int,
) -> None:
    """Bytes have arrived in the local buffer, some or all: that is -2012, though the peer is gone."""
    with workers(1) as cluster, pause_points.held("transfer.between_chunks") as point:
        session = cluster.call(0, "start")
        there = cluster.call(0, "open_memory", "m", READ, kind)
        cluster.call(0, "store", "m", b"peer")
        reading = Beside(lambda: (engine.transfer_sync_read(session, memory, there, READ), mf.get_last_err_msg()))
        point.wait_until_reached()
        if chunks == 2:
            point.let_pass()
            point.wait_until_reached()
        cluster.kill(0)
        point.release()
        code, sentence = reading.result()
    assert ctypes.string_at(memory, 4) == b"peer"
    assert code == -2012, sentence
    assert "its process" in sentence
    assert "bytes were moved" in sentence


def test_deaths_are_noticed_during_a_long_transfer(
    engine: mf.TransferEngine,
    memory: int,
    store_url: str,
    workers: Callable[[int], AbstractContextManager[Cluster]],
) -> None:
    """The transfer stands between two chunks; copies of a pool to ranks that die meanwhile must not succeed."""
    there = engine.trans_malloc(LONG)
    codes: list[int] = []
    config = bm.BmConfig()
    assert bm.initialize(store_url, 4, 0, config) == 0, mf.get_last_err_msg()
    pool = bm.create(0, 2 * MIB)
    assert pool.join() == 0, mf.get_last_err_msg()
    byte = ctypes.create_string_buffer(1)
    with Cluster(2, "support.pool_worker") as cluster, pause_points.held("transfer.between_chunks") as point:
        ranks = cluster.call_all("take_part", store_url, 4)
        moving = threading.Thread(
            target=lambda: codes.append(engine.transfer_sync_write(engine.session_id, memory, there, LONG))
        )
        moving.start()
        point.wait_until_reached()
        for index, rank in enumerate(ranks):
            copy = (ctypes.addressof(byte), pool.peer_rank_ptr(rank, bm.BmMemType.HOST), 1, bm.BmCopyType.H2G)
            assert pool.copy_data(*copy) == 0, mf.get_last_err_msg()
            cluster.kill(index)
            until = time.monotonic() + campaigns.notice_s()
            while (code := pool.copy_data(*copy)) == 0 and time.monotonic() < until:
                pass
            assert code == -2014, f"rank {rank} is dead, and copies to it return {code}"
        point.release()
        moving.join()
    assert codes == [0]


def test_memory_of_others_goes_during_a_long_transfer(engine: mf.TransferEngine, memory: int, store_url: str) -> None:
    """Who takes memory away that the transfer has nothing to do with does not wait for it."""
    there = engine.trans_malloc(LONG)
    assert bm.initialize(store_url, 4, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
    pool = bm.create(0, 2 * MIB)
    with pause_points.held("transfer.between_chunks") as point:
        moving = Beside(lambda: engine.transfer_sync_write(engine.session_id, memory, there, LONG))
        point.wait_until_reached()
        pool._detach(3)
        gone = pool._collect()
        pool.destroy()
        point.release()
        assert moving.result() == 0
    assert gone


def test_object_that_ends_during_a_transfer_ends_it(engine: mf.TransferEngine, store_url: str) -> None:
    """The local buffer lies in a pool that is destroyed between two chunks: an error, not a crash."""
    assert bm.initialize(store_url, 1, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
    pool = bm.create(0, LONG)
    assert pool.join() == 0, mf.get_last_err_msg()
    there = engine.trans_malloc(LONG)
    outcome: list[tuple[int, str]] = []

    def move() -> None:
        code = engine.transfer_sync_write(engine.session_id, pool.peer_rank_ptr(0, bm.BmMemType.HOST), there, 300 * MIB)
        outcome.append((code, mf.get_last_err_msg()))

    with pause_points.held("transfer.between_chunks") as point:
        moving = threading.Thread(target=move)
        moving.start()
        point.wait_until_reached()
        ending = threading.Thread(target=pool.destroy)
        ending.start()
        while pool._is_open:
            pass
        point.release()
        moving.join()
        ending.join()
    assert outcome[0][0] == -2012, outcome
    assert "bytes were moved" in outcome[0][1]
