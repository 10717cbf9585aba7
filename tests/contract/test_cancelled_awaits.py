"""An `await` of a transfer or a stream that is cancelled, or whose time is up: afterwards nothing moves any more."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import signal
from collections.abc import Awaitable, Iterator

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, clock
from support import pause_points, pool_worker
from support.pause_points import held
from support.workers import Cluster

pytestmark = pytest.mark.usefixtures("everything_off")

MIB = 1 << 20
LONG = 300 * MIB  # three chunks of a transfer
COPY = 80 * MIB  # three chunks of a copy
LOOK_S = 0.3  # in which a CancelledError that does not wait would have come


@pytest.fixture
def engine(everything_off: None) -> Iterator[mf.TransferEngine]:
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        yield engine


@pytest.fixture
def memory() -> Iterator[int]:
    """Much memory that takes little: pages come when they are touched."""
    mapped = mmap.mmap(-1, LONG)
    first = ctypes.c_char.from_buffer(mapped)
    yield ctypes.addressof(first)
    del first
    mapped.close()


async def result_of(awaitable: Awaitable[int]) -> int:
    return await awaitable


async def reached(point: pause_points.Point) -> None:
    await asyncio.get_running_loop().run_in_executor(None, point.wait_until_reached)


def byte_at(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


async def ends_only_after(point: pause_points.Point, task: asyncio.Task[int], error: type[BaseException]) -> None:
    """The task is being cancelled. It stays while bytes may move, the loop goes on, and then it ends with the error."""
    turns = 0
    until = asyncio.get_running_loop().time() + LOOK_S
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 1, "the loop stood still"
    assert not task.done(), "the memory is still in use"
    point.release()
    with pytest.raises(error):
        await asyncio.wait_for(asyncio.shield(task), 20)


@pytest.mark.parametrize("by_timeout", [False, True])
def test_running_read_is_cut_before_the_buffer_is_given_back(
    engine: mf.TransferEngine, memory: int, by_timeout: bool
) -> None:
    there = engine.trans_malloc(LONG)
    for offset in range(0, LONG, MIB):
        ctypes.c_uint8.from_address(there + offset).value = 7

    async def main() -> mf.transfer.Ticket:
        with held("transfer.between_chunks") as point:
            ticket = engine.submit_read(engine.session_id, memory, there, LONG)
            await reached(point)
            waiting: Awaitable[int] = asyncio.wait_for(result_of(ticket), 0.01) if by_timeout else result_of(ticket)
            task = asyncio.ensure_future(waiting)
            await asyncio.sleep(0)
            if not by_timeout:
                task.cancel()
            error = asyncio.TimeoutError if by_timeout else asyncio.CancelledError
            await ends_only_after(point, task, error)
            return ticket

    ticket = asyncio.run(main())
    assert ticket.done
    ctypes.memset(memory, 0, MIB)  # the program uses its buffer again
    assert ticket.wait(20) == -2012
    assert "cancelled while it ran" in mf.get_last_err_msg()
    assert byte_at(memory) == 0
    assert byte_at(memory + LONG - MIB) == 0, "the last chunk was never moved"


def test_cancelling_again_does_not_shorten_the_wait(engine: mf.TransferEngine, memory: int) -> None:
    there = engine.trans_malloc(LONG)

    async def main() -> None:
        with held("transfer.between_chunks") as point:
            task = asyncio.ensure_future(result_of(engine.submit_write(engine.session_id, memory, there, LONG)))
            await reached(point)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            await ends_only_after(point, task, asyncio.CancelledError)

    asyncio.run(main())


def test_transfer_that_has_not_begun_is_withdrawn_at_once(engine: mf.TransferEngine) -> None:
    there = engine.trans_malloc(MIB)
    own = ctypes.create_string_buffer(b"new", 3)

    async def main() -> None:
        with held("submissions.before_task"):
            first = engine.submit_write(engine.session_id, ctypes.addressof(own), there, 3)
            second = engine.submit_write(engine.session_id, ctypes.addressof(own), there + 64, 3)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(result_of(second), 0.01)
            assert second.done
            assert not first.done
        assert await first == 0
        assert second.wait() == -2003

    asyncio.run(main())
    assert ctypes.string_at(there, 3) == b"new"
    assert ctypes.string_at(there + 64, 3) == bytes(3)


@pytest.mark.parametrize("write", [False, True])
def test_transfer_over_the_network_ends_though_the_peer_stands_still(
    everything_off: None, monkeypatch: pytest.MonkeyPatch, write: bool
) -> None:
    """It would wait for ten minutes."""
    monkeypatch.setenv("ASCEND_TRANSFER_TIMEOUT", "600000")
    size = 64 * MIB  # more than sockets hold
    own = ctypes.create_string_buffer(size)
    here = ctypes.addressof(own)

    async def main(engine: mf.TransferEngine, session: str, there: int) -> int:
        move = engine.submit_write if write else engine.submit_read
        ticket = move(session, here, there, size)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(result_of(ticket), 0.2)
        assert ticket.done
        return ticket.wait()

    with Cluster(1, "support.transfer_worker") as cluster, mf.TransferEngine() as engine:
        session, there = cluster.call(0, "start"), cluster.call(0, "open_memory", "m", size)
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0, mf.TransDataOpType.HOST_TCP) == 0
        assert engine.transfer_sync_read(session, here, there, 1) == 0, mf.get_last_err_msg()
        cluster.kill(0, signal.SIGSTOP)
        began = clock.now()
        code = asyncio.run(main(engine, session, there))
        assert clock.now() - began < 100
        assert code in (-2003, -2012), "-2003 on a machine so slow that it had not begun"
        ctypes.memset(here, 9, size)
        cluster.kill(0, signal.SIGCONT)
        assert engine.transfer_sync_read(session, here, there, 1) == 0, mf.get_last_err_msg()
        assert own.raw[1:] == b"\x09" * (size - 1), "the buffer was the program's again"


def test_shielded_transfer_goes_on(engine: mf.TransferEngine, memory: int) -> None:
    there = engine.trans_malloc(LONG)

    async def main() -> int:
        with held("transfer.between_chunks") as point:
            inner = asyncio.ensure_future(result_of(engine.submit_write(engine.session_id, memory, there, LONG)))
            outer = asyncio.ensure_future(result_of(asyncio.shield(inner)))
            await reached(point)
            outer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await outer
            point.release()
            return await inner

    assert asyncio.run(main()) == 0


@pytest.fixture
def pool(store_url: str, everything_off: None) -> Iterator[bm.BigMemory]:
    pool_worker.take_part(store_url, 1, dram=COPY + 2 * MIB)
    yield pool_worker.pools[0]
    pool_worker.uninitialize()


def copies(pool: bm.BigMemory, stream: mf.Stream, memory: int) -> None:
    """Two on the stream, a long one and a short one, out of the pool."""
    source = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
    ctypes.memset(source, 7, 1)
    ctypes.memset(source + COPY, 7, 1)
    for offset, size in ((0, COPY), (COPY, 1)):
        code = pool.copy_data(source + offset, memory + offset, size, bm.BmCopyType.G2H, 4, stream)
        assert code == 0, mf.get_last_err_msg()


def test_stream_whose_await_is_cancelled_moves_nothing_any_more(pool: bm.BigMemory, memory: int) -> None:
    async def main(stream: mf.Stream) -> None:
        with held("space.copy.between_chunks") as point:
            copies(pool, stream, memory)
            task = asyncio.ensure_future(result_of(stream))
            await reached(point)
            task.cancel()
            await ends_only_after(point, task, asyncio.CancelledError)

    with mf.Stream() as stream:
        asyncio.run(main(stream))
        assert stream.completed == stream.submitted == 2
        assert byte_at(memory) == 7
        assert byte_at(memory + COPY) == 0, "the second copy never began"
        assert stream.wait() == -2012, "who waits next is told that not all was copied"
        assert "cancelled while it ran" in mf.get_last_err_msg()
        assert pool.wait() == -2012
        copies(pool, stream, memory)
        assert stream.wait() == 0, mf.get_last_err_msg()
        assert byte_at(memory + COPY) == 7


def test_what_is_submitted_after_the_await_is_not_called_off(pool: bm.BigMemory, memory: int) -> None:
    async def main(stream: mf.Stream) -> int:
        with held("space.copy.between_chunks") as point:
            copies(pool, stream, memory)
            task = asyncio.ensure_future(result_of(stream))
            await reached(point)
            source = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
            code = pool.copy_data(source, memory + COPY + 1, 1, bm.BmCopyType.G2H, 4, stream)
            assert code == 0, mf.get_last_err_msg()
            task.cancel()
            await ends_only_after(point, task, asyncio.CancelledError)
            return await stream

    with mf.Stream() as stream:
        assert asyncio.run(main(stream)) == -2012
        assert (byte_at(memory + COPY), byte_at(memory + COPY + 1)) == (0, 7)
