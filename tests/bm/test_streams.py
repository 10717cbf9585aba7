"""Streams: ordered, waitable, awaitable, many at once; the first failure is told once."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType
from support import pool_worker
from support.pause_points import held
from support.pool_worker import MIB

USE_STREAM = 4


@pytest.fixture
def own(pool: BigMemory) -> int:
    return pool.peer_rank_ptr(0, BmMemType.HOST)


@pytest.fixture
def plain() -> Iterator[int]:
    buffer = ctypes.create_string_buffer(b"0123456789" * 100_000)
    yield ctypes.addressof(buffer)
    del buffer


def chain(pool: BigMemory, own: int, plain: int, stream: Any, links: int = 50) -> None:
    """Each copy needs the one before."""
    size = 20_000
    assert pool.copy_data(plain, own, size, BmCopyType.H2G, USE_STREAM, stream) == 0
    for link in range(links):
        source = own + link * size
        assert pool.copy_data(source, source + size, size, BmCopyType.G2G, USE_STREAM, stream) == 0
    assert pool.copy_data(own + links * size, own + (links + 1) * size, size, BmCopyType.AUTO, USE_STREAM, stream) == 0


def check_chain(own: int, links: int = 50) -> None:
    assert ctypes.string_at(own + (links + 1) * 20_000, 20_000) == b"0123456789" * 2000


def test_copies_of_a_stream_keep_their_order(pool: BigMemory, own: int, plain: int) -> None:
    with mf.Stream() as stream:
        chain(pool, own, plain, stream)
        assert stream.wait() == 0
        check_chain(own)
        assert stream.submitted == stream.completed == 52
    assert mf.get_last_err_msg() == ""


def test_integer_handle_and_other_flags(pool: BigMemory, own: int, plain: int) -> None:
    stream = mf.Stream()
    assert int(stream) == stream.handle > 0
    for flags in (USE_STREAM, USE_STREAM | 1):
        ctypes.memset(own, 0, 10)
        assert pool.copy_data(plain, own, 10, BmCopyType.H2G, flags, int(stream)) == 0
        assert stream.wait() == 0
        assert ctypes.string_at(own, 10) == b"0123456789"
    stream.close()
    stream.close()


def test_object_waits_for_its_copies_on_any_stream(pool: BigMemory, own: int, plain: int) -> None:
    with mf.Stream() as stream:
        chain(pool, own, plain, stream)
        assert pool.wait() == 0
        check_chain(own)


def test_batches_on_a_stream_may_forget_their_lists(pool: BigMemory, own: int, plain: int) -> None:
    count = 5000
    with mf.Stream() as stream:
        for start in (0, count * 10):
            columns = [np.arange(count, dtype=np.uint64) * 10 + base for base in (plain, own + start)]
            sizes = np.full(count, 10, np.uint64)
            assert pool.copy_data_batch(*columns, sizes, count, BmCopyType.H2G, USE_STREAM, stream) == 0
            for column in (*columns, sizes):
                column[:] = 0
        assert stream.wait() == 0
    assert ctypes.string_at(own, count * 20) == b"0123456789" * count * 2


def test_wait_returns_the_first_failure_once(store_url: str, plain: int, workers: Any) -> None:
    pool_worker.take_part(store_url, 2, dram=16 * MIB)
    pool = pool_worker.pools[0]
    with workers(1) as cluster, mf.Stream() as stream:
        cluster.call(0, "take_part", store_url, 2, dram=16 * MIB)
        other = pool.peer_rank_ptr(1, BmMemType.HOST)
        own = pool.peer_rank_ptr(0, BmMemType.HOST)
        with held("stream.before_task"):  # while the rank dies: what was submitted before fails at its turn
            for _ in range(2):
                assert pool.copy_data(own, other, 16 * MIB, BmCopyType.G2G, USE_STREAM, stream) == 0
            assert pool.copy_data(plain, own, 10, BmCopyType.H2G, USE_STREAM, stream) == 0
            cluster.kill(0)
            pool_worker.wait_for_view([0])
        assert stream.wait() == -2014
        assert "rank 1" in mf.get_and_clear_last_err_msg()
        assert stream.wait() == 0, "told once"
        assert ctypes.string_at(own, 10) == b"0123456789", "what came after the failure was done"
        assert pool.wait() == -2014, "the object has its own account"
        assert pool.wait() == 0


def test_destroying_the_object_ends_what_is_queued(pool: BigMemory, own: int) -> None:
    with mf.Stream() as stream:
        for _ in range(500):
            assert pool.copy_data(own, own + 2 * MIB, 2 * MIB, BmCopyType.G2G, USE_STREAM, stream) == 0
            assert pool.copy_data(own, own + 2 * MIB, 2 * MIB, BmCopyType.G2G, 1) == 0
        pool.destroy()
        assert stream.wait() in (0, -2000, -2003)


def test_time_out_of_a_wait(pool: BigMemory, own: int) -> None:
    with mf.Stream() as stream:
        with held("stream.before_task"):
            assert pool.copy_data(own, own + 2 * MIB, 2 * MIB, BmCopyType.G2G, USE_STREAM, stream) == 0
            assert stream.wait(timeout_s=0.0) == -2004
            assert "0" in mf.get_and_clear_last_err_msg()
        assert stream.wait(timeout_s=60) == 0


def test_await(pool: BigMemory, own: int, plain: int) -> None:
    async def many() -> list[int]:
        streams = [mf.Stream() for _ in range(8)]
        for number, stream in enumerate(streams):
            chain(pool, own + number * 400_000, plain, stream, links=15)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticker = asyncio.create_task(tick())
        codes = await asyncio.gather(*(wait_for(stream) for stream in streams))
        ticker.cancel()
        assert ticks > 0, "the loop went on meanwhile"
        for stream in streams:
            stream.close()
        return list(codes)

    async def wait_for(stream: mf.Stream) -> int:
        return await stream

    assert asyncio.run(many()) == [0] * 8
    for number in range(8):
        check_chain(own + number * 400_000, links=15)


def test_await_of_an_idle_stream_returns_at_once() -> None:
    async def wait() -> int:
        with mf.Stream() as stream:
            return await asyncio.wait_for(_awaited(stream), 5)

    assert asyncio.run(wait()) == 0


async def _awaited(stream: mf.Stream) -> int:
    return await stream


def test_many_streams_from_many_threads(pool: BigMemory, own: int, plain: int) -> None:
    failures: list[BaseException] = []

    def work(lane: int) -> None:
        try:
            for _ in range(5):
                with mf.Stream() as stream:
                    chain(pool, own + lane * 400_000, plain, stream, links=15)
                    assert stream.wait() == 0
                    check_chain(own + lane * 400_000, links=15)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_stream_that_is_dropped_does_what_was_submitted(pool: BigMemory, own: int, plain: int) -> None:
    for _ in range(50):
        assert pool.copy_data(plain, own, 100_000, BmCopyType.H2G, USE_STREAM, mf.Stream()) == 0
    assert pool.wait() == 0
