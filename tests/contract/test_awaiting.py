"""Awaiting much at once: one descriptor per event loop, and nothing left afterwards."""

from __future__ import annotations

import asyncio
import ctypes
import os

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid.api import awaiting
from support.pause_points import held
from support.programs import run_python

pytestmark = pytest.mark.usefixtures("everything_off")

HUNDRED = """
import asyncio, ctypes, os, resource
import memfabric_hybrid as mf
from memfabric_hybrid import _native

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
memory = ctypes.create_string_buffer(1 << 16)
here = ctypes.addressof(memory)
engine = mf.TransferEngine()
assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
assert engine.register_memory(here, 1 << 16) == 0, mf.get_last_err_msg()

async def main():
    _native._hold_at("submissions.before_task")  # so that all of them are under way together
    tickets = [engine.submit_write(engine.session_id, here, here + 64 * (i + 1), 64) for i in range(100)]
    waiting = [asyncio.ensure_future(wait(ticket)) for ticket in tickets]
    await asyncio.sleep(0)
    assert not any(ticket.done for ticket in tickets)
    _native._release_at("submissions.before_task")
    return await asyncio.gather(*waiting)

async def wait(ticket):
    return await ticket

assert asyncio.run(main()) == [0] * 100
print("well")
"""


def test_a_hundred_transfers_with_few_descriptors() -> None:
    done = run_python(HUNDRED)
    assert (done.stdout, done.stderr, done.returncode) == ("well\n", "", 0)


def open_descriptors() -> int:
    """Those of the kind that waiting takes: others may be closed by whatever was here before."""
    return sum(_target(name) == "anon_inode:[eventfd]" for name in os.listdir("/proc/self/fd"))


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:  # closed meanwhile
        return ""


async def _of(stream: mf.Stream) -> int:
    return await stream


def test_one_descriptor_while_something_is_awaited(engine_and_memory: tuple[mf.TransferEngine, int]) -> None:
    engine, here = engine_and_memory

    async def main() -> list[int]:
        before = open_descriptors()
        with held("stream.before_task") as point:
            streams = [mf.Stream() for _ in range(20)]
            for stream in streams:
                assert engine.transfer_async_write_submit(engine.session_id, here, here + 64, 64, stream) == 0
            waiting = [asyncio.ensure_future(_of(stream)) for stream in streams]
            await asyncio.sleep(0)
            assert open_descriptors() == before + 1
            cancelled = waiting.pop()
            cancelled.cancel()
            await asyncio.sleep(0)
            assert open_descriptors() == before + 1
            point.release()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            codes = await asyncio.gather(*waiting)
        assert open_descriptors() == before
        for stream in streams:
            stream.close()
        return codes

    assert asyncio.run(main()) == [0] * 19
    assert not awaiting._waits


def test_what_has_ended_already_is_not_waited_for(engine_and_memory: tuple[mf.TransferEngine, int]) -> None:
    engine, here = engine_and_memory

    async def main() -> int:
        with mf.Stream() as stream:
            assert engine.transfer_async_write_submit(engine.session_id, here, here + 64, 64, stream) == 0
            assert stream.wait() == 0
            return await stream + await stream

    assert asyncio.run(main()) == 0


def test_a_stream_that_closes_lets_go_of_who_awaits_it(engine_and_memory: tuple[mf.TransferEngine, int]) -> None:
    engine, here = engine_and_memory

    async def main() -> int:
        stream = mf.Stream()
        with held("stream.before_task") as point:
            assert engine.transfer_async_write_submit(engine.session_id, here, here + 64, 64, stream) == 0
            waiting = asyncio.ensure_future(_of(stream))
            await asyncio.sleep(0)
            closing = asyncio.get_running_loop().run_in_executor(None, stream.close)
            point.release()
            await closing
            return await waiting

    assert asyncio.run(main()) == 0


@pytest.fixture
def engine_and_memory(everything_off: None) -> tuple[mf.TransferEngine, int]:
    engine = mf.TransferEngine()
    assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
    here = engine.trans_malloc(4096)
    assert here, mf.get_last_err_msg()
    ctypes.memset(here, 1, 64)
    assert engine.transfer_sync_write(engine.session_id, here, here + 64, 64) == 0  # connected from here on
    return engine, here
