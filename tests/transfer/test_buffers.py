"""Transfers for programs that like exceptions: whole buffers to and from addresses, at once, later, or awaited."""

from __future__ import annotations

import asyncio
import gc
import mmap
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import memfabric_hybrid as mf
from memfabric_hybrid import errors
from support.pause_points import held

SIZE = 1 << 16


@pytest.fixture
def peer() -> Iterator[tuple[str, np.ndarray[Any, np.dtype[np.uint8]]]]:
    """A session, and its registered memory."""
    memory = np.zeros(SIZE, np.uint8)
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Decode", 0) == 0, mf.get_last_err_msg()
        assert engine.register(memory) == 0
        yield engine.session_id, memory


@pytest.fixture
def engine() -> Iterator[mf.TransferEngine]:
    with mf.TransferEngine() as made:
        assert made.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        yield made


def test_whole_buffers(engine: mf.TransferEngine, peer: Any) -> None:
    session, memory = peer
    address = memory.ctypes.data
    rows = np.arange(12.0).reshape(3, 4)
    engine.write(session, rows, address + 8)
    assert bytes(memory[8 : 8 + rows.nbytes]) == rows.tobytes()
    np.testing.assert_array_equal(engine.read(session, np.empty_like(rows), address + 8), rows)
    engine.write(session, b"words", address, notify=b"there")
    assert engine.read(session, bytearray(5), address) == b"words"


def test_the_peer_is_told(engine: mf.TransferEngine) -> None:
    memory = np.zeros(16, np.uint8)
    with mf.TransferEngine() as target:
        assert target.initialize(None, "127.0.0.1:0", "Decode", 0) == 0
        assert target.register(memory) == 0
        engine.write(target.session_id, b"words", memory.ctypes.data, notify=b"there")
        assert [(one.session, one.data) for one in target.notifications()] == [(engine.session_id, b"there")]


def test_tensors_of_torch(engine: mf.TransferEngine, peer: Any) -> None:
    session, memory = peer
    tensor = torch.arange(16, dtype=torch.bfloat16)
    engine.write(session, tensor, memory.ctypes.data)
    assert torch.equal(engine.read(session, torch.zeros(16, dtype=torch.bfloat16), memory.ctypes.data), tensor)


def test_failures_are_exceptions(engine: mf.TransferEngine, peer: Any) -> None:
    session, memory = peer
    address = memory.ctypes.data
    with pytest.raises(ValueError, match="are not all inside memory that is registered there now"):
        engine.write(session, bytes(SIZE + 1), address)
    with pytest.raises(ValueError, match="contiguous"):
        engine.write(session, np.arange(10)[::2], address)
    with pytest.raises(ValueError, match=r"read-only, and read\(\) writes into it"):
        engine.read(session, b"1234", address)
    with pytest.raises(TypeError, match="source must be a buffer or a tensor, not float"):
        engine.write(session, 1.0, address)
    with pytest.raises(errors.NotConnected, match=r"127.0.0.1:1 cannot be reached"):
        engine.write("127.0.0.1:1", b"1", address)
    with pytest.raises(TypeError, match=r"write\(\).*dest_session must be a str"):
        engine.write(7, b"1", address)  # type: ignore[arg-type]
    assert not memory.any()


def test_arrays_that_have_no_buffer_protocol(engine: mf.TransferEngine, peer: Any) -> None:
    """Dates are numbers in memory."""
    session, memory = peer
    days = np.array(["2020-01-01", "2021-06-07"], "M8[D]")
    engine.write(session, days, memory.ctypes.data)
    np.testing.assert_array_equal(engine.read(session, np.empty_like(days), memory.ctypes.data), days)
    days.flags.writeable = False
    engine.write(session, days, memory.ctypes.data)
    records = np.zeros(2, [("day", "M8[D]"), ("count", "i4")])
    assert engine.register(records) == engine.unregister(records) == 0


def test_buffers_that_have_ended(engine: mf.TransferEngine, peer: Any) -> None:
    session, memory = peer
    ended, released = mmap.mmap(-1, 4096), memoryview(b"x")
    ended.close()
    released.release()
    for buffer, kind in ((ended, "mmap"), (released, "memoryview")):
        with pytest.raises(errors.InvalidParam, match=f"source is a {kind} whose memory cannot be used: "):
            engine.write(session, buffer, memory.ctypes.data)
        assert engine.register(buffer) == -2000
        assert "unexpected" not in mf.get_last_err_msg()


def test_order_and_strides(engine: mf.TransferEngine, peer: Any) -> None:
    session, memory = peer
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert engine.register(columns) == engine.unregister(columns) == 0, "it is one piece of memory"
    with pytest.raises(errors.InvalidParam, match=r"not C-contiguous: pass np.ascontiguousarray\(\)"):
        engine.write(session, columns, memory.ctypes.data)
    assert engine.register(columns[:, ::2]) == -2000
    with pytest.raises(errors.InvalidParam, match="source has 0 bytes, expected at least 1"):
        engine.write(session, b"", memory.ctypes.data)


def test_names_of_what_is_submitted(engine: mf.TransferEngine, peer: Any) -> None:
    """Those of `write` and `read`, and those of lists of pieces."""
    session, memory = peer
    source, address = bytearray(b"words"), memory.ctypes.data
    engine.submit_write(session, source=source, address=address).result(20)
    target = bytearray(5)
    engine.submit_read(session, target=target, address=address).result(20)
    assert target == source
    here = np.frombuffer(target, np.uint8).ctypes.data
    engine.submit_read(session, buffers=[here], peer_buffers=[address], lengths=[5]).result(20)
    with pytest.raises(TypeError, match="source must be a buffer or a tensor, not int"):
        engine.submit_write(session, 7, address)
    with pytest.raises(TypeError, match="not some of each"):
        engine.submit_write(session, source, address, buffers=[here])  # type: ignore[call-overload]


def test_tickets_carry_their_error(engine: mf.TransferEngine, peer: Any) -> None:
    session, memory = peer
    good = engine.submit_write(session, b"words", memory.ctypes.data)
    good.result(20)
    assert (good.done, good.error, good.wait()) == (True, None, 0)
    bad = engine.submit_write(session, bytes(SIZE + 1), memory.ctypes.data)
    with pytest.raises(errors.InvalidParam, match="registered there now"):
        bad.result(20)
    assert isinstance(bad.error, errors.InvalidParam)
    assert bad.wait() == -2000
    back = bytearray(5)
    engine.submit_read(session, back, memory.ctypes.data).result(20)
    assert back == b"words"
    with pytest.raises(ValueError, match=r"read-only, and submit_read\(\) writes into it"):
        engine.submit_read(session, b"12345", memory.ctypes.data)


def test_awaited(engine: mf.TransferEngine, peer: Any) -> None:
    session, memory = peer

    async def program() -> bytearray:
        await engine.submit_write(session, b"words", memory.ctypes.data).finished()
        with pytest.raises(errors.NotConnected):
            await engine.submit_write("127.0.0.1:1", b"words", memory.ctypes.data).finished()
        back = bytearray(5)
        await engine.submit_read(session, back, memory.ctypes.data).finished()
        return back

    assert asyncio.run(program()) == b"words"


def test_a_buffer_lives_while_its_bytes_move(engine: mf.TransferEngine, peer: Any) -> None:
    """Though the program forgets both, buffer and ticket."""
    session, memory = peer
    sources = [np.full(SIZE, value, np.uint8) for value in range(1, 9)]
    alive = [weakref.ref(source) for source in sources]
    with held("submissions.before_task"):
        while sources:
            engine.submit_write(session, sources.pop(0), memory.ctypes.data)
        gc.collect()
        assert all(source() is not None for source in alive)
    last = engine.submit_write(session, b"last", memory.ctypes.data)
    last.result(20)
    assert (memory[4:] == 8).all()
    engine.submit_write(session, b"more", memory.ctypes.data).result(20)
    gc.collect()
    assert all(source() is None for source in alive)
