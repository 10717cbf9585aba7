"""Registered memory of pools, heaps and `trans_malloc`: peers map it, and let go of it when it is given back."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from support import transfer_worker
from support.workers import Cluster

MIB = 1 << 20
SIZE = 4 * MIB
Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


@pytest.fixture
def own() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(bytes(i % 251 for i in range(SIZE)), SIZE)


def mappings_become(count: int) -> bool:
    """What a peer withdraws is unmapped by the engine's own thread, soon."""
    deadline = time.monotonic() + 10
    while transfer_worker.shared_mappings() != count and time.monotonic() < deadline:
        time.sleep(0.01)
    return transfer_worker.shared_mappings() == count


def exchange(engine: mf.TransferEngine, session: str, own: ctypes.Array[ctypes.c_char], address: int) -> None:
    """A write, and a read that brings the same bytes back."""
    must(engine.transfer_sync_write(session, ctypes.addressof(own), address, SIZE))
    back = ctypes.create_string_buffer(SIZE)
    here = ctypes.addressof(back)
    must(engine.batch_transfer_sync_read(session, [here, here + 5], [address, address + 5], [5, SIZE - 5]))
    assert back.raw == own.raw


@pytest.mark.parametrize("connected_before", [False, True])
def test_a_pool_of_others_is_mapped(
    engine: mf.TransferEngine,
    workers: Workers,
    store_url: str,
    own: ctypes.Array[ctypes.c_char],
    connected_before: bool,
) -> None:
    """This process is no member of the pool, and attaches before or after the registration."""
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        if connected_before:
            must(engine.send_probe(session))
        address = cluster.call(0, "open_pool", "pool", store_url, SIZE)
        before = transfer_worker.shared_mappings()
        exchange(engine, session, own, address)
        assert cluster.call(0, "load", "pool") == own.raw
        assert transfer_worker.shared_mappings() == before + 1
        exchange(engine, session, own, address)
        assert transfer_worker.shared_mappings() == before + 1


def test_a_stopped_target_with_a_new_pool_serves(
    engine: mf.TransferEngine, workers: Workers, store_url: str, own: ctypes.Array[ctypes.c_char]
) -> None:
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        must(engine.send_probe(session))
        address = cluster.call(0, "open_pool", "pool", store_url, SIZE)
        before = transfer_worker.shared_mappings()
        cluster.kill(0, signal.SIGSTOP)
        exchange(engine, session, own, address)
        assert transfer_worker.shared_mappings() == before + 1
        cluster.kill(0, signal.SIGCONT)
        assert cluster.call(0, "load", "pool") == own.raw


def test_members_of_one_pool(workers: Workers, store_url: str) -> None:
    """Both map the pool as members; a transfer and a plain load see the same bytes."""
    with workers(2) as cluster:
        sessions = cluster.call_all("start")
        places = [cluster.call(index, "open_pool", "pool", store_url, SIZE) for index in (0, 1)]
        cluster.call(0, "store", "pool", b"\x11" * SIZE)
        assert cluster.call(0, "write", sessions[1], "pool", places[1], SIZE) == (0, "")
        assert cluster.call(1, "load", "pool") == b"\x11" * SIZE


def test_a_pool_that_is_left_stays_registered_and_one_that_is_destroyed_does_not(
    engine: mf.TransferEngine, workers: Workers, store_url: str, own: ctypes.Array[ctypes.c_char]
) -> None:
    """leave() keeps the bytes, destroy() gives them back: transfers follow, and our mapping goes with them."""
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        must(engine.send_probe(session))
        address = cluster.call(0, "open_pool", "pool", store_url, SIZE)
        before = transfer_worker.shared_mappings()
        exchange(engine, session, own, address)
        cluster.call(0, "leave_pool", "pool")
        exchange(engine, session, own, address)
        cluster.call(0, "destroy_pool", "pool")
        for transfer in (engine.transfer_sync_write, engine.transfer_sync_read):
            assert transfer(session, ctypes.addressof(own), address, 8) == -2000
            assert "registered there now" in mf.get_last_err_msg()
        assert mappings_become(before)
        again = cluster.call(0, "open_pool", "pool", store_url, SIZE)
        exchange(engine, session, own, again)
        assert cluster.call(0, "load", "pool") == own.raw


def test_unregistered_before_the_pool_goes(
    engine: mf.TransferEngine, workers: Workers, store_url: str, own: ctypes.Array[ctypes.c_char]
) -> None:
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        must(engine.send_probe(session))
        before = transfer_worker.shared_mappings()
        address = cluster.call(0, "open_pool", "pool", store_url, SIZE)
        exchange(engine, session, own, address)
        assert cluster.call(0, "call", "unregister_memory", address) == (0, "")
        assert engine.transfer_sync_write(session, ctypes.addressof(own), address, 8) == -2000
        assert cluster.call(0, "call", "register_memory", address, SIZE) == (0, "")
        exchange(engine, session, own, address)
        assert transfer_worker.shared_mappings() == before + 1
        assert cluster.call(0, "call", "unregister_memory", address) == (0, "")
        cluster.call(0, "destroy_pool", "pool")
        assert mappings_become(before)


def test_memory_that_is_extended_afterwards(
    engine: mf.TransferEngine, workers: Workers, store_url: str, own: ctypes.Array[ctypes.c_char]
) -> None:
    """The new memory is mapped as well; a piece across the border of both arrives, too."""
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        address = cluster.call(0, "open_pool", "pool", store_url, SIZE, 4 * SIZE)
        exchange(engine, session, own, address)
        before = transfer_worker.shared_mappings()
        more = cluster.call(0, "extend_pool", "pool", SIZE)
        exchange(engine, session, own, more)
        assert transfer_worker.shared_mappings() == before + 1
        exchange(engine, session, own, more - SIZE // 2)
        assert cluster.call(0, "load", "pool", SIZE // 2) == own.raw[: SIZE // 2]
        assert cluster.call(0, "load", "more of pool", 0, SIZE // 2) == own.raw[SIZE // 2 :]


def test_the_memory_of_the_dead_is_let_go(
    engine: mf.TransferEngine, workers: Workers, store_url: str, own: ctypes.Array[ctypes.c_char]
) -> None:
    before = transfer_worker.shared_mappings()
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        pool = cluster.call(0, "open_pool", "pool", store_url, SIZE)
        arena = cluster.call(0, "open_memory", "arena", SIZE, "arena")
        exchange(engine, session, own, pool)
        exchange(engine, session, own, arena)
        assert transfer_worker.shared_mappings() == before + 2
        cluster.kill(0)
        for address in (pool, arena):
            assert engine.transfer_sync_write(session, ctypes.addressof(own), address, SIZE) == -2014
        assert mappings_become(before)


def test_a_buffer_of_ours_in_the_memory_of_the_dead_is_refused(
    engine: mf.TransferEngine, workers: Workers, store_url: str
) -> None:
    """As `copy_data` does: the addresses are still reserved for that rank, but no memory is there."""
    must(mf.create_config_store(store_url))
    must(bm.initialize(store_url, 2, 0, bm.BmConfig()))
    pool = bm.create2(0, SIZE, SIZE)
    must(pool.join())
    with workers(2) as cluster:
        session = cluster.call(0, "start")
        place = cluster.call(0, "open_memory", "place", SIZE, "arena")
        cluster.call(1, "start")
        buffer = cluster.call(1, "open_pool", "pool", store_url, SIZE, 0, 2)
        must(engine.transfer_sync_write(session, buffer, place, SIZE))
        gone = threading.Event()
        pool.set_group_event_handler(lambda rank, event: gone.set() if event.name == "LEAVE_EVENT" else None)
        cluster.kill(1)
        assert gone.wait(20)
        assert engine.transfer_sync_write(session, buffer, place, SIZE) == -2014
        assert "rank 1 cannot be reached" in mf.get_and_clear_last_err_msg()
        halves = [SIZE // 2] * 2
        assert engine.batch_transfer_sync_read(session, [buffer, buffer + 4], [place, place + 4], halves) == -2014
        scales = ctypes.create_string_buffer(4)
        scale = ctypes.addressof(scales)
        assert engine.batch_transfer_write_with_quant(session, [buffer], [place], [4], [scale], [0], 1, 1) == -2014
        assert engine.batch_transfer_write_with_quant(session, [scale], [place], [4], [buffer], [0], 1, 1) == -2014
    pool.destroy()


def test_a_symmetric_heap_is_mapped(workers: Workers, store_url: str, own: ctypes.Array[ctypes.c_char]) -> None:
    with workers(2) as cluster:
        sessions = cluster.call_all("start")
        begun = [cluster.begin(rank, "open_heap", "heap", store_url, 2, rank, SIZE) for rank in (0, 1)]
        places = [one.result() for one in begun]
        before = cluster.call(0, "shared_mappings")
        cluster.call(0, "store", "heap", own.raw)
        assert cluster.call(0, "write", sessions[1], "heap", places[1], SIZE) == (0, "")
        assert cluster.call(1, "load", "heap") == own.raw
        assert cluster.call(0, "shared_mappings") == before + 1
        assert places[0] != places[1]
        begun = [cluster.begin(rank, "destroy_heap", "heap") for rank in (0, 1)]
        for one in begun:
            one.result()
        code, why = cluster.call(0, "call", "transfer_sync_write", sessions[1], places[0], places[1], 8)
        assert code == -2000, why


def test_an_array_keeps_the_memory_of_a_destroyed_pool(engine: mf.TransferEngine, store_url: str) -> None:
    """The array stays valid memory, so its registration does too, until it is unregistered."""
    must(bm.initialize(store_url, 1, 0, bm.BmConfig()))
    pool = bm.create(0, 2 * MIB)
    must(pool.join())
    array = pool.array(0, 1024, "u1")
    address = array.ctypes.data
    must(engine.register(array))
    del array
    pool.destroy()
    own = ctypes.create_string_buffer(b"z" * 1024, 1024)
    must(engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), address, 1024))
    assert ctypes.string_at(address, 1024) == own.raw
    must(engine.unregister_memory(address))
    assert engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), address, 8) == -2000
    engine.destroy()
    bm.uninitialize()


def test_writers_never_harm_a_pool_that_comes_and_goes(workers: Workers, store_url: str) -> None:
    """Pools are made, registered, written to without a pause, and destroyed: codes, never a crash, never a false 0."""
    rounds = 12
    with workers(2) as cluster:
        cluster.call(0, "start", role="Prefill")
        session = cluster.call(1, "start")
        for _ in range(rounds):
            address = cluster.call(1, "open_pool", "pool", store_url, SIZE)
            cluster.call(0, "start_writing", session, address, SIZE, 2)
            deadline = time.monotonic() + 20
            while cluster.call(0, "written") < 3 and time.monotonic() < deadline:
                time.sleep(0.002)
            cluster.call(1, "destroy_pool", "pool")
            code, _ = cluster.call(0, "call", "transfer_sync_write", session, 4096, address, 8)
            assert code == -2000
            for codes, longest_s, sentences in cluster.call(0, "stop_writing"):
                assert codes.get(0, 0) > 0, (codes, sentences)
                assert codes.keys() <= {0, -2000}, sentences
                assert longest_s < 3
