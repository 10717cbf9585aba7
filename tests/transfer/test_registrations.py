"""What may be registered, what a registration opens and closes, and that its end is final."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

import memfabric_hybrid as mf
from support.workers import Cluster

MIB, GIB = 1 << 20, 1 << 30
Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


class Region:
    """Anonymous memory of this process; nothing is touched until somebody writes."""

    def __init__(self, size: int, protection: int = mmap.PROT_READ | mmap.PROT_WRITE) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._libc = libc
        self.size = size
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
        self.address: int = libc.mmap(None, size, protection, flags, -1, 0)
        assert self.address not in (None, 2**64 - 1)

    def close(self) -> None:
        self._libc.munmap(self.address, self.size)


def test_ten_thousand_overlapping_registrations(engine: mf.TransferEngine, rng: random.Random) -> None:
    """1 byte to 1 GiB at any place; what is covered and what is not agrees with a model, by single bytes."""
    region = Region(64 * GIB)
    starts, ends = [], []
    for i in range(10_000):  # the large ones share the upper half: few enough to leave gaps there
        large = i % 500 == 0
        size = int(2 ** (rng.uniform(14, 30) if large else rng.uniform(0, 14)))
        low, high = (32 * GIB, 64 * GIB) if large else (0, 32 * GIB)
        start = rng.randrange(low, high - size)
        starts.append(start)
        ends.append(start + size)
    starts.append(63 * GIB - 1)
    ends.append(64 * GIB - 1)
    must(engine.batch_register_memory(
        [region.address + s for s in starts], [e - s for s, e in zip(starts, ends, strict=True)]))  # fmt: skip
    assert engine._registration_count > 9_990
    order = sorted(zip(starts, ends, strict=True))
    union: list[list[int]] = []
    for start, end in order:
        if union and start <= union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([start, end])
    own = np.zeros(64, np.uint8)

    def code(start: int, size: int) -> int:
        return engine.transfer_sync_read(engine.session_id, int(own.ctypes.data), region.address + start, size)

    for start, end in rng.sample(union, 300):
        size = min(end - start, 64)
        assert code(start, size) == 0, mf.get_last_err_msg()
        assert code(end - size, size) == 0
        assert code(start - 1, 1) == (0 if any(a < start <= b for a, b in ((u[0], u[1]) for u in union)) else -2000)
        assert code(end, 1) == -2000
        assert code(end - 1, 2) == -2000
    gone = rng.sample(range(len(starts)), 5_000)
    must(engine.batch_unregister_memory([region.address + starts[i] for i in gone]))
    left = set(range(len(starts))) - set(gone)
    covered = sorted((starts[i], ends[i]) for i in left)
    for i in rng.sample(gone, 300):
        inside = any(a <= starts[i] < b for a, b in covered)
        assert code(starts[i], 1) == (0 if inside else -2000)
    region.close()


def test_adjacent_registrations_are_one_range(engine: mf.TransferEngine) -> None:
    region = Region(MIB)
    for offset in range(0, 64, 8):
        must(engine.register_memory(region.address + offset, 8))
    own = ctypes.create_string_buffer(64)
    must(engine.transfer_sync_read(engine.session_id, ctypes.addressof(own), region.address, 64))
    must(engine.unregister_memory(region.address + 24))
    assert engine.transfer_sync_read(engine.session_id, ctypes.addressof(own), region.address, 64) == -2000
    must(engine.transfer_sync_read(engine.session_id, ctypes.addressof(own), region.address, 24))
    region.close()


def test_memory_of_both_kinds_side_by_side(engine: mf.TransferEngine) -> None:
    one, two = engine.trans_malloc(100), engine.trans_malloc(5 * MIB)
    assert one % 4096 == 0
    assert two % (2 * MIB) == 0
    assert ctypes.string_at(two, 5 * MIB) == bytes(5 * MIB)
    must(engine.trans_free(one))
    assert engine.trans_free(one) == -2007
    assert engine.unregister_memory(one) == -2007
    own = ctypes.create_string_buffer(b"abc", 3)
    session = engine.session_id
    assert engine.transfer_sync_write(session, ctypes.addressof(own), one, 3) == -2000
    must(engine.transfer_sync_write(session, ctypes.addressof(own), two + 5 * MIB - 3, 3))
    must(engine.unregister_memory(two))
    assert engine.transfer_sync_write(session, ctypes.addressof(own), two, 3) == -2000
    assert ctypes.string_at(two + 5 * MIB - 3, 3) == b"abc"
    must(engine.trans_free(two))
    assert engine.trans_malloc(0) == 0
    assert engine.trans_malloc(1 << 60) == 0
    assert "more than the" in mf.get_last_err_msg()


def test_freed_memory_of_trans_malloc_goes_back(engine: mf.TransferEngine) -> None:
    address = engine.trans_malloc(64 * MIB)
    ctypes.memset(address, 7, 64 * MIB)
    must(engine.trans_free(address))
    again = engine.trans_malloc(64 * MIB)
    assert again == address
    assert ctypes.string_at(again, 4096) == bytes(4096)


def test_garbage_is_refused_and_poisons_nothing(engine: mf.TransferEngine) -> None:
    closed = Region(4096, protection=0)
    good = Region(4096)
    hole = Region(64 * MIB + 2 * 4096)  # so large that nothing else happens to be mapped into it
    libc = ctypes.CDLL(None)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.munmap(hole.address + 4096, 64 * MIB)
    curtain = Region(64 * 4096)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(curtain.address + 30 * 4096, 4096, 0) == 0
    for address, size in ((0, 4096), (good.address, 0), (good.address, 1 << 60), (2**64 - 4096, 8192), (2**64 - 1, 1),
                          (0x1000, 4096), (hole.address, hole.size), (closed.address, 4096), (1 << 60, 8),
                          (curtain.address, curtain.size), (curtain.address + 29 * 4096, 3 * 4096)):  # fmt: skip
        assert engine.register_memory(address, size) == -2000, (hex(address), size)
        assert engine.batch_register_memory([good.address, address], [4096, size]) == -2000
    assert engine._registration_count == 0
    assert engine.batch_register_memory([good.address], [1, 2]) == -2000
    with pytest.raises(TypeError):
        engine.register_memory(-1, 8)
    with pytest.raises(TypeError):
        engine.register_memory("address", 8)
    assert engine.unregister_memory(good.address) == -2007
    must(engine.register_memory(good.address, 4096))
    own = ctypes.create_string_buffer(8)
    must(engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), good.address, 8))
    assert engine.batch_unregister_memory([good.address, 4]) == -2007
    must(engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), good.address, 8))
    good.close()
    assert engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), good.address, 8) == -2000
    assert "not mapped any more" in mf.get_last_err_msg()
    closed.close()
    hole.close()
    curtain.close()


def test_buffers_and_tensors(engine: mf.TransferEngine) -> None:
    class Tensor:
        """What a torch CPU tensor shows of itself."""

        device = "cpu"

        def __init__(self, data: np.ndarray) -> None:  # type: ignore[type-arg]
            self.data = data

        def data_ptr(self) -> int:
            return int(self.data.ctypes.data)

        def numel(self) -> int:
            return self.data.size

        def element_size(self) -> int:
            return self.data.itemsize

        def is_contiguous(self) -> bool:
            return bool(self.data.flags.c_contiguous)

    own = ctypes.create_string_buffer(b"12345678", 8)
    numbers = np.zeros(4, np.uint16)
    tensor = Tensor(np.zeros(8, np.uint8))
    for buffer, address in ((numbers, numbers.ctypes.data), (tensor, tensor.data_ptr())):
        must(engine.register(buffer))
        must(engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), int(address), 8))
        must(engine.unregister(buffer))
        assert engine.transfer_sync_write(engine.session_id, ctypes.addressof(own), int(address), 8) == -2000
    assert numbers.tobytes() == tensor.data.tobytes() == b"12345678"
    for bad in (np.zeros((4, 4))[:, 1], bytearray(), Tensor(np.zeros((4, 4))[:, 1]), Tensor(np.zeros(0))):
        assert engine.register(bad) == -2000
    with pytest.raises(TypeError):
        engine.register(17)


def test_read_only_buffers_are_refused(engine: mf.TransferEngine) -> None:
    """Peers could write into them: `bytes` that change break every dictionary they are in."""
    constant = b"never changes" * 100
    frozen = np.arange(1000)
    frozen.flags.writeable = False
    for buffer in (constant, frozen, memoryview(bytearray(64)).toreadonly()):
        assert engine.register(buffer) == -2000
        assert "is read-only, and peers may write into registered memory" in mf.get_last_err_msg()
    address = np.frombuffer(constant, np.uint8).ctypes.data
    source = ctypes.create_string_buffer(b"changed", 7)
    assert engine.transfer_sync_write(engine.session_id, ctypes.addressof(source), address, 7) == -2000
    assert constant == b"never changes" * 100
    copied = frozen.copy()
    must(engine.register(copied))
    copied.flags.writeable = False
    must(engine.unregister(copied))


def test_changes_reach_connected_peers_at_once_even_when_stopped(engine: mf.TransferEngine, workers: Workers) -> None:
    own = ctypes.create_string_buffer(b"x" * 4096, 4096)
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        first = cluster.call(0, "open_memory", "first", 4096)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), first, 4096))
        second = cluster.call(0, "open_memory", "second", 4096)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), second, 4096))
        assert cluster.call(0, "call", "unregister_memory", first) == (0, "")
        cluster.kill(0, signal.SIGSTOP)
        assert engine.transfer_sync_write(session, ctypes.addressof(own), first, 1) == -2000
        must(engine.transfer_sync_write(session, ctypes.addressof(own), second, 4096))
        cluster.kill(0, signal.SIGCONT)


def test_unregister_waits_for_a_peer_that_is_inside(engine: mf.TransferEngine, workers: Workers) -> None:
    """A writer that is stopped in the middle keeps the memory: -2004 names it; when it goes on, all is well."""
    region = Region(256 * MIB)
    ctypes.memset(region.address, 1, region.size)
    must(engine.register_memory(region.address, region.size))
    with workers(1) as cluster:
        cluster.call(0, "start")
        cluster.call(0, "open_memory", "m", region.size)
        assert cluster.call(0, "write", engine.session_id, "m", region.address, 1) == (0, "")
        cluster.call(0, "start_writing", engine.session_id, region.address, region.size)
        code = 0
        for _ in range(50):
            time.sleep(0.01)
            cluster.kill(0, signal.SIGSTOP)
            began = time.monotonic()
            code = engine.unregister_memory(region.address)
            took = time.monotonic() - began
            cluster.kill(0, signal.SIGCONT)
            if code == -2004:
                break
            assert code == 0, mf.get_last_err_msg()
            must(engine.register_memory(region.address, region.size))
        assert code == -2004
        assert str(cluster.pid(0)) in mf.get_last_err_msg()
        assert 2.5 < took < 6
        must(engine.unregister_memory(region.address))  # the same call again: it goes on, so it leaves
        assert engine.unregister_memory(region.address) == -2007
        ctypes.memset(region.address, 2, region.size)
        [(codes, _, sentences)] = cluster.call(0, "stop_writing")
        assert codes.keys() <= {0, -2000, -2012}, sentences
        assert ctypes.string_at(region.address, region.size) == b"\2" * region.size
    region.close()


def test_no_write_lands_after_unregister(engine: mf.TransferEngine, workers: Workers) -> None:
    """Writers without a pause; whenever unregister_memory has returned, the memory stays as we left it."""
    size = MIB
    region = Region(size)
    with workers(1) as cluster:
        cluster.call(0, "start")
        must(engine.register_memory(region.address, size))
        cluster.call(0, "start_writing", engine.session_id, region.address, size, 2)
        for turn in range(40):
            before = cluster.call(0, "written")
            while cluster.call(0, "written") == before:
                os.sched_yield()
            must(engine.unregister_memory(region.address))
            ctypes.memset(region.address, turn + 1, size)
            time.sleep(0.002)
            assert ctypes.string_at(region.address, size) == bytes([turn + 1]) * size
            must(engine.register_memory(region.address, size))
        for codes, longest_s, sentences in cluster.call(0, "stop_writing"):
            assert codes.keys() <= {0, -2000}, sentences
            assert longest_s < 3
    region.close()


def test_registered_before_initialize_is_remembered(engine: mf.TransferEngine) -> None:
    with mf.TransferEngine() as other:
        memory = bytearray(16)
        must(other.register(memory))
        arena = other.trans_malloc(4096)
        must(other.initialize(None, "127.0.0.1", "Decode", 0))
        own = ctypes.create_string_buffer(b"y" * 16, 16)
        place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        must(engine.transfer_sync_write(other.session_id, ctypes.addressof(own), place, 16))
        must(engine.transfer_sync_write(other.session_id, ctypes.addressof(own), arena, 16))
        assert memory == b"y" * 16
        assert ctypes.string_at(arena, 16) == b"y" * 16
