"""Many threads use the library at once, also while objects end and ranks come and go."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import memfabric_hybrid as mf
from memfabric_hybrid import bm
from memfabric_hybrid.bm import BmCopyType, BmMemType
from support import pool_worker
from support.pool_worker import MIB
from support.threads import wait_until

HOST = BmMemType.HOST


def at_once(count: int, step: Callable[[int], Any]) -> list[Any]:
    """What `step` returned, or raised, on each of `count` threads that started together."""
    barrier, results = threading.Barrier(count), [None] * count

    def work(number: int) -> None:
        barrier.wait()
        try:
            results[number] = step(number)
        except Exception as failure:
            results[number] = failure  # type: ignore[call-overload]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@contextmanager
def copying(pool: bm.BigMemory, count: int) -> Iterator[set[int]]:
    """Threads copy in every way during the block; the codes they got."""
    codes: set[int] = set()
    stop = threading.Event()
    own = pool.peer_rank_ptr(0, HOST)
    plain = ctypes.create_string_buffer(MIB)

    def work(number: int) -> None:
        start = ctypes.addressof(plain)
        while not stop.is_set():
            codes.add(pool.copy_data(start, own, 1000, BmCopyType.H2G))
            codes.add(pool.copy_data(own, own + 2 * MIB, MIB, BmCopyType.G2G, number % 2))
            codes.add(pool.copy_data_batch([start] * 9, [own] * 9, [64] * 9, 9, BmCopyType.AUTO))
            codes.add(pool.copy_data_2d(start, 100, own, 100, 90, 90, BmCopyType.H2G))
            codes.add(pool.wait())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield codes
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_eight_threads_on_one_object(store_url: str, workers: Any) -> None:
    """Copies, batches, asynchronous copies, arrays and extensions, while another rank comes and goes."""
    pool_worker.take_part(store_url, 3, dram=16 * MIB, max_dram_size=40 * MIB)
    pool = pool_worker.pools[0]
    stop = threading.Event()
    failures: list[str] = []

    def work(lane: int) -> None:
        choose = random.Random(lane)
        source, back = ctypes.create_string_buffer(MIB), ctypes.create_string_buffer(MIB)
        begin = 2 * MIB * lane
        while not stop.is_set():
            size = choose.choice((1, 100, 4096, 100_000, MIB))
            ctypes.memset(source, choose.randrange(256), size)
            place = pool.peer_rank_ptr(choose.randrange(2), HOST) + begin + choose.randrange(MIB)
            addresses = ctypes.addressof(source), ctypes.addressof(back)
            if choose.random() < 0.5:
                codes = [pool.copy_data(addresses[0], place, size, BmCopyType.H2G)]
            else:
                half = size // 2 or 1
                codes = [pool.copy_data_batch([addresses[0], addresses[0] + size - half], [place, place + size - half],
                                              [half, half], 2, BmCopyType.H2G)]  # fmt: skip
                if 2 * half < size:
                    codes.append(pool.copy_data(addresses[0], place, size, BmCopyType.AUTO))
            codes.append(pool.copy_data(place, addresses[1], size, BmCopyType.G2H))
            if any(codes):
                failures.append(f"lane {lane}: {codes} {mf.get_last_err_msg()}")
            elif source.raw[:size] != back.raw[:size]:
                failures.append(f"lane {lane}: other bytes")
            pool.array(0, 100, "u1", offset=begin)
            pool.copy_data(addresses[0], pool.peer_rank_ptr(2, HOST), 8, BmCopyType.H2G, choose.randrange(2))

    with workers(2) as cluster:
        cluster.call(0, "take_part", store_url, 3, dram=16 * MIB, max_dram_size=40 * MIB)
        threads = [threading.Thread(target=work, args=(lane,)) for lane in range(8)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(2):
                cluster.call(1, "take_part", store_url, 3, dram=16 * MIB, max_dram_size=40 * MIB)
                assert pool.extend_local_mem(HOST, 2 * MIB) == 0
                cluster.call(1, "call", "leave")
                cluster.call(1, "join")
                cluster.kill(1)
                cluster.start(1)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert pool.wait() in (0, -2014)
    assert failures == []


def test_last_error_belongs_to_the_thread(pool: bm.BigMemory) -> None:
    seen: list[str] = []

    def fail() -> None:
        pool.copy_data(1, 2, 3, BmCopyType.L2G)
        seen.append(mf.get_last_err_msg())

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert "0x1" in seen[0]
    assert mf.get_last_err_msg() == ""


def test_destroy_under_running_copies(store_url: str) -> None:
    assert pool_worker.enter(store_url, 1) == (0, "")
    for _ in range(10):
        pool_worker.create(0, dram=4 * MIB)
        pool_worker.join()
        with copying(pool_worker.pools[0], 4) as codes:
            wait_until(lambda: 0 in codes)
            pool_worker.destroy()
        assert codes <= {0, -2000, -2003}


def test_uninitialize_under_running_copies(store_url: str) -> None:
    for _ in range(5):
        pool_worker.take_part(store_url, 1, dram=4 * MIB)
        with copying(pool_worker.pools[0], 4) as codes:
            wait_until(lambda: 0 in codes)
            mf.uninitialize()
        assert codes <= {0, -2000, -2003}
        pool_worker.pools.clear()


def test_leave_and_join_under_running_copies(store_url: str) -> None:
    pool_worker.take_part(store_url, 1, dram=4 * MIB)
    pool = pool_worker.pools[0]
    with copying(pool, 4) as codes:
        for _ in range(20):
            assert pool.leave() == 0
            assert pool.join() == 0
    assert codes <= {0, -2003}


def test_everything_at_once_from_many_threads(store_url: str) -> None:
    assert at_once(8, lambda number: pool_worker.enter(store_url, 4)[0]) == [0] * 8
    assert bm.bm_rank_id() == 0
    made = at_once(8, lambda number: bm.create(1, MIB))
    (pool,) = [each for each in made if isinstance(each, bm.BigMemory)]
    assert sum(isinstance(each, RuntimeError) for each in made) == 7, "one of them, and seven that exist already"
    assert at_once(8, lambda number: pool.join()) == [0] * 8
    assert at_once(8, lambda number: pool.extend_local_mem(HOST, 1)) == [-2000] * 8
    assert sorted(at_once(8, lambda number: pool.leave())) == [-2003] * 7 + [0]
    assert at_once(8, lambda number: pool.destroy()) == [None] * 8
    others = at_once(8, lambda number: bm.create(10 + number, MIB))
    assert all(isinstance(each, bm.BigMemory) for each in others)
    assert at_once(8, lambda number: others[number].join()) == [0] * 8
    assert at_once(8, lambda number: mf.uninitialize()) == [None] * 8
