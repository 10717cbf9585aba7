"""Every kind of transfer between real processes, checked byte by byte; what is refused leaves everything untouched."""

from __future__ import annotations

import array
import asyncio
import ctypes
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memfabric_hybrid as mf
from support.workers import Cluster

MIB = 1 << 20
SIZE = 4 * MIB
Workers = Callable[..., AbstractContextManager[Cluster]]


class Target:
    """The engine of another process with memory of one kind, and an own buffer to transfer from and to."""

    def __init__(self, cluster: Cluster, index: int, kind: str, engine: mf.TransferEngine) -> None:
        self.cluster, self.index, self.engine = cluster, index, engine
        self.session = cluster.call(index, "start")
        self.address = cluster.call(index, "open_memory", "m", SIZE, kind)
        self.own = np.random.default_rng(3).integers(0, 256, SIZE, np.uint8)
        self.base = int(self.own.ctypes.data)

    def memory(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.frombuffer(self.cluster.call(self.index, "load", "m"), np.uint8)

    def fill(self, seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        data = np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)
        self.cluster.call(self.index, "store", "m", data.tobytes())
        return data


@pytest.fixture(params=["private", "arena"])
def target(request: pytest.FixtureRequest, engine: mf.TransferEngine, workers: Workers) -> Iterator[Target]:
    with workers(1) as cluster:
        yield Target(cluster, 0, request.param, engine)


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


def pieces(rng: random.Random, count: int, largest: int) -> tuple[list[int], list[int], list[int]]:
    """Disjoint pieces of odd sizes at odd places: own offsets, peer offsets, lengths."""
    step = SIZE // count
    own, peer = list(range(count)), list(range(count))
    rng.shuffle(own)
    rng.shuffle(peer)
    lengths = [rng.randint(1, min(largest, step - 8)) for _ in range(count)]
    return [i * step + rng.randint(0, 7) for i in own], [i * step + rng.randint(0, 7) for i in peer], lengths


@pytest.mark.parametrize("size", [1, 7, 4096, 65536 + 3, MIB + 1, SIZE])
def test_single_write_and_read(target: Target, size: int) -> None:
    must(target.engine.transfer_sync_write(target.session, target.base, target.address, size))
    np.testing.assert_array_equal(target.memory()[:size], target.own[:size])
    assert not target.memory()[size:].any()
    there = target.fill(5)
    must(target.engine.transfer_sync_read(target.session, target.base + SIZE - size, target.address, size))
    np.testing.assert_array_equal(target.own[SIZE - size :], there[:size])


def test_reading_into_read_only_memory_blames_the_buffer(
    engine: mf.TransferEngine, workers: Workers, tmp_path: Path
) -> None:
    """A file that is mapped for reading only, as weights and datasets are."""
    (tmp_path / "weights").write_bytes(bytes(8192))
    weights = np.memmap(tmp_path / "weights", np.uint8, "r")
    with workers(1) as cluster:
        target = Target(cluster, 0, "private", engine)
        assert engine.transfer_sync_read(target.session, weights.ctypes.data, target.address, 8192) == -2000
        place = f"8192 bytes at {weights.ctypes.data:#x}"
        assert mf.get_last_err_msg() == (
            f"session {target.session}: the buffer of this process, {place}, is read-only; read into memory that can "
            "be written"
        )
        must(engine.transfer_sync_write(target.session, weights.ctypes.data, target.address, 8192))
    del weights


@pytest.mark.parametrize(
    "as_list", [list, tuple, lambda items: np.array(items, np.uint64), lambda i: array.array("q", i)]
)
@pytest.mark.parametrize(("count", "largest"), [(1, MIB), (100, 40_000), (3000, 1300)])
def test_batches(target: Target, rng: random.Random, as_list: Any, count: int, largest: int) -> None:
    own, peer, lengths = pieces(rng, count, largest)
    arguments = ([target.base + o for o in own], [target.address + p for p in peer], lengths)
    must(target.engine.batch_transfer_sync_write(target.session, *(as_list(list(a)) for a in arguments)))
    expected = np.zeros(SIZE, np.uint8)
    for o, p, n in zip(own, peer, lengths, strict=True):
        expected[p : p + n] = target.own[o : o + n]
    np.testing.assert_array_equal(target.memory(), expected)
    there, before = target.fill(6), target.own.copy()
    must(target.engine.batch_transfer_sync_read(target.session, *(as_list(list(a)) for a in arguments)))
    for o, p, n in zip(own, peer, lengths, strict=True):
        before[o : o + n] = there[p : p + n]
    np.testing.assert_array_equal(target.own, before)


def test_batch_of_a_mebi_pieces(target: Target) -> None:
    count = 1 << 20
    offsets = np.arange(count, dtype=np.uint64) * 4
    arguments = (
        offsets + np.uint64(target.base),
        offsets[::-1] + np.uint64(target.address),
        np.full(count, 4, np.uint64),
    )
    must(target.engine.batch_transfer_sync_write(target.session, *(np.ascontiguousarray(a) for a in arguments)))
    np.testing.assert_array_equal(target.memory().view("u4"), target.own.view("u4")[::-1])
    too_many = [np.append(a, a[-1]) for a in arguments]
    assert target.engine.batch_transfer_sync_write(target.session, *too_many) == -2000
    assert "1048577 pieces" in mf.get_last_err_msg()


def test_streams(target: Target) -> None:
    engine, session = target.engine, target.session
    with mf.Stream() as stream:
        must(engine.transfer_async_write_submit(session, target.base, target.address, MIB, stream))
        must(engine.batch_transfer_async_write_submit(
            session, [target.base + MIB], [target.address + MIB], [MIB], int(stream)))  # fmt: skip
        must(stream.wait())
        np.testing.assert_array_equal(target.memory()[: 2 * MIB], target.own[: 2 * MIB])
        there = target.fill(9)
        must(engine.transfer_async_read_submit(session, target.base, target.address, MIB, stream=stream))
        must(engine.batch_transfer_async_read_submit(
            session, [target.base + MIB], [target.address + MIB], lengths=[MIB], stream=stream))  # fmt: skip
        must(stream.wait())
        np.testing.assert_array_equal(target.own[: 2 * MIB], there[: 2 * MIB])
        must(engine.transfer_async_write_submit(session, target.base, 0x1000, 8, stream))
        assert stream.wait() == -2000
    for bad in (0, 1 << 40):
        assert engine.transfer_async_write_submit(session, target.base, target.address, 8, bad) == -2000
        assert "stream" in mf.get_last_err_msg()


def test_tickets(target: Target) -> None:
    ticket = target.engine.submit_write(target.session, target.base, target.address, SIZE)
    assert ticket.wait(10) == 0
    assert ticket.done
    np.testing.assert_array_equal(target.memory(), target.own)
    there = target.fill(11)

    async def several() -> list[int]:
        quarter = SIZE // 4
        tickets = [
            target.engine.submit_read(target.session, [target.base + q], [target.address + q], [quarter])
            for q in range(0, SIZE, quarter)
        ]
        return [await ticket for ticket in tickets]

    assert asyncio.run(several()) == [0] * 4
    np.testing.assert_array_equal(target.own, there)
    bad = target.engine.submit_read(target.session, target.base, 0x1000, 1)
    assert bad.wait() == -2000
    assert "not all inside memory that is registered" in mf.get_last_err_msg()


def test_a_ticket_that_waits_can_be_cancelled(target: Target) -> None:
    many = [target.base] * 3000, [target.address] * 3000, [SIZE] * 3000
    busy = target.engine.submit_write(target.session, *many)
    deadline = time.monotonic() + 20
    while not any(target.cluster.call(target.index, "load", "m", 0, 64)) and time.monotonic() < deadline:
        time.sleep(0.001)  # until it has begun
    waiting = target.engine.submit_write(target.session, target.base, target.address, 8)
    assert waiting.cancel()
    assert waiting.done
    assert waiting.wait() == -2003
    assert not busy.done
    assert busy.wait(0.001) == -2004
    assert not busy.cancel()
    assert busy.wait(60) == 0


@pytest.mark.parametrize(("input_type", "name"), [(0, "bf16"), (1, "fp16")])
@pytest.mark.parametrize("on_stream", [False, True])
def test_quantised_write(target: Target, input_type: int, name: str, on_stream: bool) -> None:
    units, per_unit, count = 16, 129, 20
    rng = np.random.default_rng(4)
    numbers = (rng.standard_normal((count, units, per_unit)) * 40).astype(np.float32)
    numbers.reshape(-1)[:8] = [np.nan, np.inf, -np.inf, 6e4, -6e4, 2.5, 3.5, -0.5]
    halves = (
        numbers.astype(np.float16).view(np.uint16) if name == "fp16" else (numbers.view(np.uint32) >> 16).astype("u2")
    )
    exact = (
        halves.view(np.float16).astype(np.float32) if name == "fp16" else (halves.astype("u4") << 16).view(np.float32)
    )
    scales = rng.uniform(0.5, 4, (count, units)).astype(np.float32)
    offsets = rng.uniform(-3, 3, (count, units)).astype(np.float32)
    scales[0, 0], offsets[0, 0] = 1, 0
    moved = exact * scales[..., None] + offsets[..., None]
    expected = np.clip(np.nan_to_num(np.rint(moved), nan=0, posinf=127, neginf=-128), -128, 127).astype(np.int8)
    per_piece = units * per_unit
    stream = mf.Stream()
    must(target.engine.batch_transfer_write_with_quant(
        target.session,
        [halves.ctypes.data + i * per_piece * 2 for i in range(count)],
        [target.address + i * per_piece for i in range(count)],
        [per_piece * 2] * count,
        [scales.ctypes.data + i * units * 4 for i in range(count)],
        [offsets.ctypes.data + i * units * 4 for i in range(count)],
        units,
        input_type,
        int(stream) if on_stream else 0,
    ))  # fmt: skip
    must(stream.wait())
    stream.close()
    np.testing.assert_array_equal(target.memory()[: count * per_piece].view(np.int8), expected.reshape(-1))


def test_quantised_write_refuses_nonsense(target: Target) -> None:
    good: dict[str, Any] = {
        "buffers": [target.base], "peer_buffers": [target.address], "lengths": [64], "scale_buffers": [target.base],
        "offset_buffers": [], "unit_num": 4, "input_type": 0,
    }  # fmt: skip
    must(target.engine.batch_transfer_write_with_quant(target.session, **good))
    for change in ({"lengths": [63]}, {"lengths": [66]}, {"unit_num": 0}, {"input_type": 2}, {"scale_buffers": [0]},
                   {"scale_buffers": []}, {"buffers": [0]}, {"offset_buffers": [1, 2]}, {"lengths": [0]}):  # fmt: skip
        assert target.engine.batch_transfer_write_with_quant(target.session, **{**good, **change}) == -2000, change


def test_ranges_that_are_not_registered(target: Target) -> None:
    engine, session, end = target.engine, target.session, target.address + SIZE
    for address, size in (
        (0x1000, 8),
        (target.address - 1, 2),
        (end - 1, 2),
        (end, 1),
        (2**64 - 4, 8),
        (target.address, 0),
    ):
        for transfer in (engine.transfer_sync_write, engine.transfer_sync_read):
            assert transfer(session, target.base, address, size) == -2000
    assert engine.batch_transfer_sync_write(
        session, [target.base] * 3, [target.address, end, target.address], [8, 8, 8]
    ) == -2000  # fmt: skip
    assert f"8 bytes at {end:#x} are not all inside memory that is registered" in mf.get_last_err_msg()
    which = f"piece 1 of 3 (counted from 0), 8 bytes from {target.base:#x} to {end:#x}: "
    assert mf.get_last_err_msg().startswith(which)
    columns = np.array([[target.base, target.address, 8], [target.base, end, 8]], np.int64)
    ticket = engine.submit_read(session, columns[:, 0], columns[:, 1], columns[:, 2])
    assert ticket.wait(20) == -2000
    assert f"piece 1 of 2 (counted from 0), 8 bytes from {end:#x} to {target.base:#x}: " in mf.get_last_err_msg()
    assert not target.memory().any()
    assert engine.batch_transfer_sync_write(session, [target.base], [target.address, end], [8]) == -2000
    assert engine.batch_transfer_sync_write(session, [], [], []) == -2000
    assert engine.transfer_sync_write(session, 0, target.address, 8) == -2000


def test_own_side_that_is_not_mapped(engine: mf.TransferEngine, workers: Workers) -> None:
    """Through the kernel a bad address of ours is an answer, not a signal."""
    with workers(1) as cluster:
        target = Target(cluster, 0, "private", engine)
        for transfer in (engine.transfer_sync_write, engine.transfer_sync_read):
            assert transfer(target.session, 0x1000, target.address, 64) == -2000
            assert "the buffer of this process, 64 bytes at 0x1000, is not all mapped" in mf.get_last_err_msg()


def test_wrong_types(target: Target) -> None:
    for arguments in ((1, target.base, target.address, 8), (target.session, "x", target.address, 8),
                      (target.session, -1, target.address, 8), (target.session, target.base, 2**64, 8)):  # fmt: skip
        with pytest.raises(TypeError, match=r"^transfer_sync_write\(\): (dest_session|buffer|peer_buffer) "):
            target.engine.transfer_sync_write(*arguments)
    with pytest.raises(TypeError, match=r"^batch_transfer_sync_write\(\): buffers must be a list"):
        target.engine.batch_transfer_sync_write(target.session, 1, 2, 3)
    for wrong, why in ((["1"], "item 0 must be an integer, not str"), ([-1], "item 0 is -1"), (np.zeros(2), "'d'")):
        for submit in (target.engine.submit_write, target.engine.submit_read):
            with pytest.raises(TypeError, match=rf"^{submit.__name__}\(\): peer_buffers .*{why}"):
                submit(target.session, [target.base], wrong, [8])
    with pytest.raises(TypeError, match=r"^transfer_async_write_submit\(\) misses the argument 'stream'"):
        target.engine.transfer_async_write_submit(target.session, 1, 2, 3)  # type: ignore[call-arg]


def test_sixteen_threads_on_one_engine(target: Target) -> None:
    part = SIZE // 16
    failures: list[str] = []

    def work(lane: int) -> None:
        source = np.full(part, lane + 1, np.uint8)
        back = np.zeros(part, np.uint8)
        place = target.address + lane * part
        for turn in range(40):
            size = part if turn % 4 == 0 else 1 + turn * 13
            source[:size] = (lane * 40 + turn) % 255 + 1
            codes = (
                target.engine.transfer_sync_write(target.session, int(source.ctypes.data), place, size),
                target.engine.transfer_sync_read(target.session, int(back.ctypes.data), place, size),
            )
            if codes != (0, 0) or not np.array_equal(source[:size], back[:size]):
                failures.append(f"lane {lane}, turn {turn}: {codes} {mf.get_last_err_msg()}")

    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_engine_can_transfer_to_itself(engine: mf.TransferEngine) -> None:
    source = ctypes.create_string_buffer(b"hello", 5)
    target = bytearray(5)
    must(engine.register(target))
    address = ctypes.addressof(ctypes.c_char.from_buffer(target))
    must(engine.transfer_sync_write(engine.session_id, ctypes.addressof(source), address, 5))
    assert target == b"hello"
    must(engine.unregister(target))
    assert engine.transfer_sync_write(engine.session_id, ctypes.addressof(source), address, 5) == -2000
