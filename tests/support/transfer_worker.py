"""A process with a transfer engine, step by step: the target of `Cluster` in the tests of Transfer.

Every function is one step; state is the process's own. Steps that must work raise with the last error when they do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import resource
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import memfabric_hybrid as mf
from memfabric_hybrid import _native, bm, shm
from support.held_gil import hold_gil as hold_gil

engine = mf.TransferEngine()
buffers: dict[str, Any] = {}  # name → what keeps the memory alive
addresses: dict[str, int] = {}
sizes: dict[str, int] = {}
downs: list[str] = []
pools: dict[str, bm.BigMemory] = {}
heaps: dict[str, shm.ShareMemory] = {}
kept: list[Any] = []  # never destroyed


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_and_clear_last_err_msg()}"


def start(session: str = "127.0.0.1:0", role: str = "Decode", store_url: str | None = None, **options: Any) -> str:
    """Initialises; the session id at which peers reach this engine."""
    must(engine.initialize(store_url, session, role, 0, **options))
    return engine.session_id


def set_environment(name: str, value: str) -> None:
    os.environ[name] = value


def open_memory(name: str, size: int, kind: str = "private", register: bool = True) -> int:
    """Memory filled with zeroes: private, or of `trans_malloc`; its address."""
    if kind == "arena":
        address = engine.trans_malloc(size)
        assert address, mf.get_last_err_msg()
    else:
        buffers[name] = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffers[name]))
        if register:
            must(engine.register_memory(address, size))
    addresses[name], sizes[name] = address, size
    return address


def open_pool(name: str, store_url: str, size: int, max_size: int = 0, world_size: int = 4) -> int:
    """Joins a pool and registers this rank's memory there; its address."""
    if not pools:
        must(bm.initialize(store_url, world_size, 0, bm.BmConfig()))
    pools[name] = pool = bm.create2(len(pools), size, max_size or size)
    must(pool.join())
    return _register(name, pool.peer_rank_ptr(bm.bm_rank_id(), bm.BmMemType.HOST), size)


def extend_pool(name: str, size: int) -> int:
    """More memory behind it, which is registered too; its address."""
    must(pools[name].extend_local_mem(bm.BmMemType.HOST, size))
    return _register(f"more of {name}", addresses[name] + sizes[name], size)


def leave_pool(name: str) -> None:
    must(pools[name].leave())


def destroy_pool(name: str) -> None:
    pools.pop(name).destroy()


def open_heap(name: str, store_url: str, rank_size: int, rank: int, size: int) -> int:
    """A symmetric heap of which this rank's part is registered; its address."""
    must(shm.initialize(store_url, rank_size, rank, 0, shm.ShmConfig()))
    heaps[name] = heap = shm.create(0, rank_size, rank, size)
    return _register(name, heap.gva + rank * heap.symmetric_size, size)


def destroy_heap(name: str) -> None:
    must(heaps.pop(name).destroy())


def _register(name: str, address: int, size: int) -> int:
    must(engine.register_memory(address, size))
    addresses[name], sizes[name] = address, size
    return address


def shared_mappings() -> int:
    """Segments of pools and heaps, and memory of `trans_malloc`, that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum("/memfd:memfabric (" in line or "/memfd:memfabric-arena (" in line for line in maps)


def load(name: str, offset: int = 0, size: int | None = None) -> bytes:
    return ctypes.string_at(addresses[name] + offset, sizes[name] - offset if size is None else size)


def store(name: str, data: bytes, offset: int = 0) -> None:
    ctypes.memmove(addresses[name] + offset, data, len(data))


def call(method: str, *args: Any, **kwargs: Any) -> tuple[Any, str]:
    """Any method of the engine: (result, last error)."""
    mf.get_and_clear_last_err_msg()
    result = getattr(engine, method)(*args, **kwargs)
    return result, mf.get_last_err_msg()


def write(session: str, name: str, peer_address: int, size: int, offset: int = 0) -> tuple[int, str]:
    return call("transfer_sync_write", session, addresses[name] + offset, peer_address, size)


def read(session: str, name: str, peer_address: int, size: int, offset: int = 0) -> tuple[int, str]:
    return call("transfer_sync_read", session, addresses[name] + offset, peer_address, size)


def route(session: str) -> tuple[str, str]:
    return tuple(engine.route(session))


def stand_inside(session: str, name: str, peer_address: int, size: int) -> None:
    """Begins a long write and stands still in the middle of it; killing this process is the only way out."""
    _native._hold_at("transfer.between_chunks")
    threading.Thread(target=write, args=(session, name, peer_address, size), daemon=True).start()
    assert _native._wait_until_held("transfer.between_chunks", 20)


def exercise(session: str, peer_address: int, size: int, seed: int) -> int:
    """Every kind of transfer to and from `size` bytes there, each checked byte by byte; how many kinds."""
    random = np.random.default_rng(seed)
    quarters = [size // 4] * 4
    offsets = [0, size // 4, size // 2, size // 4 * 3]
    back = np.zeros(size, np.uint8)
    here, there = back.ctypes.data, peer_address
    ours = [here + o for o in offsets]
    theirs = [there + o for o in offsets]
    stream = mf.Stream()

    def on_stream(code: int) -> int:
        return code or stream.wait()

    writes: list[Callable[[int], int]] = [
        lambda base: engine.transfer_sync_write(session, base, there, size),
        lambda base: engine.batch_transfer_sync_write(session, [base + o for o in offsets], theirs, quarters),
        lambda base: on_stream(engine.transfer_async_write_submit(session, base, there, size, stream)),
        lambda base: on_stream(
            engine.batch_transfer_async_write_submit(session, [base + o for o in offsets], theirs, quarters, stream)
        ),
        lambda base: engine.submit_write(session, [base + o for o in offsets], theirs, quarters).wait(20),
    ]
    reads: list[Callable[[], int]] = [
        lambda: engine.transfer_sync_read(session, here, there, size),
        lambda: engine.batch_transfer_sync_read(session, ours, theirs, quarters),
        lambda: on_stream(engine.transfer_async_read_submit(session, here, there, size, stream)),
        lambda: on_stream(engine.batch_transfer_async_read_submit(session, ours, theirs, quarters, stream)),
        lambda: engine.submit_read(session, ours, theirs, quarters).wait(20),
    ]
    for write_there, read_back in zip(writes, reads, strict=True):
        source = random.integers(0, 256, size, np.uint8)
        must(write_there(source.ctypes.data))
        back[:] = 0
        must(read_back())
        np.testing.assert_array_equal(back, source)
    halves = random.integers(-300, 300, size).astype(np.float16)
    scales, shifts = np.full(4, 0.5, np.float32), np.full(4, 1, np.float32)
    must(engine.batch_transfer_write_with_quant(
        session, [halves.ctypes.data], [there], [halves.nbytes],
        [scales.ctypes.data], [shifts.ctypes.data], 4, 1))  # fmt: skip
    must(engine.transfer_sync_read(session, here, there, size))
    expected = np.clip(np.rint(halves.astype(np.float32) * 0.5 + 1), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(back.view(np.int8), expected)
    stream.close()
    return len(writes) + len(reads) + 1


def create_store(store_url: str) -> int:
    return mf.create_config_store(store_url)


def close_memory(name: str) -> None:
    """Gives private memory back to the machine, whether it is registered or not: a mistake."""
    libc = ctypes.CDLL(None)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    assert libc.munmap(addresses[name], sizes[name]) == 0
    kept.append(buffers.pop(name))  # its destructor would unmap whatever is there by then


def record_downs() -> None:
    engine.set_peer_down_callback(downs.append)


def wait_for_downs(count: int, timeout_s: float = 10.0) -> list[str]:
    deadline = time.monotonic() + timeout_s
    while len(downs) < count and time.monotonic() < deadline:
        time.sleep(0.002)
    return list(downs)


def fork_without_hooks(seconds: int) -> None:
    """A child that Python knows nothing of and that keeps every descriptor, as a C library would start it."""
    libc = ctypes.CDLL(None)
    if libc.fork() == 0:
        libc.sleep(seconds)
        libc._exit(0)


def destroy() -> None:
    engine.destroy()


def limit_descriptors(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def spare_descriptors() -> int:
    """How many more this process can open."""
    opened: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    for descriptor in opened:
        os.close(descriptor)
    return len(opened)


def pid() -> int:
    return os.getpid()


# ---- writing all the time --------------------------------------------------------------------------------------------

writers: list[Writer] = []


class Writer(threading.Thread):
    """Writes a changing pattern to a peer without a pause and notes what happened to every call."""

    def __init__(self, session: str, peer_address: int, size: int) -> None:
        super().__init__(name=f"writer to {session}")
        self.codes: dict[int, int] = {}
        self.sentences: set[str] = set()
        self.longest_call_s = 0.0
        self._session, self._peer_address = session, peer_address
        self._source = ctypes.create_string_buffer(b"\x5a" * size, size)
        self._stopping = threading.Event()

    def run(self) -> None:
        size = len(self._source)
        while not self._stopping.is_set():
            began = time.monotonic()
            code = engine.transfer_sync_write(self._session, ctypes.addressof(self._source), self._peer_address, size)
            self.longest_call_s = max(self.longest_call_s, time.monotonic() - began)
            self.codes[code] = self.codes.get(code, 0) + 1
            if code != 0:
                self.sentences.add(mf.get_and_clear_last_err_msg())
                self._stopping.wait(0.001)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def start_writing(session: str, peer_address: int, size: int, threads: int = 1) -> None:
    for _ in range(threads):
        writers.append(Writer(session, peer_address, size))
        writers[-1].start()


def written() -> int:
    """Writes that worked so far, of the writer that has done least."""
    return min(writer.codes.get(0, 0) for writer in writers)


def stop_writing() -> list[tuple[dict[int, int], float, list[str]]]:
    for writer in writers:
        writer.stop()
    seen = [(writer.codes, writer.longest_call_s, sorted(writer.sentences)) for writer in writers]
    writers.clear()
    return seen


# ---- notifications ---------------------------------------------------------------------------------------------------


def notify_many(session: str, count: int) -> int:
    """Numbered from 0 on, each until the peer's queue takes it; how often it was full."""
    full = 0
    for number in range(count):
        while (code := engine.notify(session, b"%d" % number)) == -2002:
            full += 1
            time.sleep(0.001)
        must(code)
    return full


def wait_for_notifications(count: int, timeout_s: float = 20.0) -> list[tuple[str, bytes]]:
    """At least so many, unless the time is over."""
    heard: list[tuple[str, bytes]] = []
    deadline = time.monotonic() + timeout_s
    while True:
        heard += [(notification.session, notification.data) for notification in engine.notifications()]
        if len(heard) >= count or time.monotonic() >= deadline:
            return heard
        time.sleep(0.001)


def write_turns(session: str, peer_address: int, size: int, turns: int) -> None:
    """Fills the peer's memory with the number of each turn, notifies, and goes on when the peer answers; every call
    that writes and can notify has its turns."""
    source = np.zeros(size, np.uint8)
    halves = np.zeros(size, np.float16)
    scales = np.ones(1, np.float32)
    here, there = source.ctypes.data, peer_address
    parts = [0, size // 3, size // 2]
    ours, theirs = [here + part for part in parts], [there + part for part in parts]
    sizes = [end - begin for begin, end in zip(parts, [*parts[1:], size], strict=True)]
    with mf.Stream() as stream:

        def on_stream(code: int) -> int:
            return code or stream.wait()

        writes: list[Callable[[bytes], int]] = [
            lambda word: engine.transfer_sync_write(session, here, there, size, notify=word),
            lambda word: engine.batch_transfer_sync_write(session, ours, theirs, sizes, notify=bytearray(word)),
            lambda word: on_stream(
                engine.transfer_async_write_submit(session, here, there, size, stream, notify=memoryview(word))
            ),
            lambda word: on_stream(
                engine.batch_transfer_async_write_submit(session, ours, theirs, sizes, stream, notify=word)
            ),
            lambda word: engine.submit_write(session, ours, theirs, sizes, notify=word).wait(20),
            lambda word: engine.batch_transfer_write_with_quant(
                session, [halves.ctypes.data], [there], [halves.nbytes], [scales.ctypes.data], [], 1, 1, notify=word),
        ]  # fmt: skip
        for turn in range(1, turns + 1):
            source[:] = turn % 100
            halves[:] = turn % 100
            must(writes[turn % len(writes)](b"%d" % turn))
            assert wait_for_notifications(1) == [(session, b"%d" % turn)]


def check_turns(session: str, name: str, turns: int) -> None:
    """The other side of `write_turns`: looks at its memory whenever it hears, then answers."""
    for turn in range(1, turns + 1):
        assert wait_for_notifications(1) == [(session, b"%d" % turn)]
        assert load(name) == bytes([turn % 100]) * sizes[name]
        must(engine.notify(session, b"%d" % turn))


def stand_before_notifying(session: str, name: str, peer_address: int, size: int) -> None:
    """Writes everything and stands still before the notification; killing this process is the only way out."""
    _native._hold_at("transfer.notify.written")

    def write_notifying() -> None:
        engine.transfer_sync_write(session, addresses[name], peer_address, size, notify=b"never")

    threading.Thread(target=write_notifying, daemon=True).start()
    assert _native._wait_until_held("transfer.notify.written", 20)


def notify_without_end(session: str) -> None:
    """From a thread, until this process is killed."""

    def notify() -> None:
        number = 0
        while engine.notify(session, b"%d" % number) in (0, -2002):
            number += 1

    threading.Thread(target=notify, daemon=True).start()
