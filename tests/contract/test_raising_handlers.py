"""What the program's signal handlers raise comes out of our calls as it is, whatever kind of exception it is.

Programs limit calls with an alarm whose handler raises, often TimeoutError: it must become no code, and must not be
mistaken for something that happened to us. The waits here would last a minute without the signal.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
from memfabric_hybrid.api import boundary
from support.alarms import SOON_S, Handler, alarm, left_by_alarm
from support.workers import Cluster

LONG = 40 << 20  # more than a copy moves between two looks at who is gone


class Raised(Exception):
    """Of the program's own."""


class Lost(ConnectionResetError):
    """As the store's connection could raise it, too."""


KINDS: list[type[Exception]] = [Raised, TimeoutError, Lost, BlockingIOError, ValueError, TypeError]

pytestmark = [
    pytest.mark.usefixtures("everything_off"),
    # A handler may raise just after a socket was opened, before anybody would close it: the collector does and says so.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class RaisingHandler:
    """Raises one exception, which the test can recognise."""

    def __init__(self, kind: type[Exception]) -> None:
        self.exception = kind("the program's alarm")

    def handle(self, number: int, frame: object) -> None:
        raise self.exception

    def __call__(self, number: int, frame: object) -> None:
        self.handle(number, frame)


@contextmanager
def interrupted_by(
    kind: type[Exception], shape: Callable[[RaisingHandler], Handler] = lambda raising: raising.handle
) -> Iterator[None]:
    """The block is left by the very exception that the handler raised, and nothing was recorded as an error."""
    raising = RaisingHandler(kind)
    mf.get_and_clear_last_err_msg()
    with left_by_alarm(kind, shape(raising), after_s=0.1) as caught:
        yield
    assert caught.value is raising.exception
    assert mf.get_last_err_msg() == ""


# ---- native waits ---------------------------------------------------------------------------------------------------


def test_barrier(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, cluster = heap_and_other
    for kind in KINDS:
        with interrupted_by(kind):
            heap.barrier()
        with interrupted_by(kind):
            heap.subgroup_barrier("pair", 2, 0)
    other = cluster.begin(1, "call", "barrier")
    assert heap.barrier() == 0, mf.get_last_err_msg()
    assert other.result()[0] == 0


def test_transfer_to_a_silent_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
    source = ctypes.create_string_buffer(64)
    with socket.create_server(("127.0.0.1", 0)) as silent, mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        session = f"127.0.0.1:{silent.getsockname()[1]}"
        for kind in KINDS:
            with interrupted_by(kind):
                engine.transfer_sync_write(session, ctypes.addressof(source), 4096, 8)


# ---- calls that talk to the store -----------------------------------------------------------------------------------


@contextmanager
def stopped(cluster: Cluster, index: int) -> Iterator[None]:
    cluster.kill(index, signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.kill(index, signal.SIGCONT)


def test_value_that_a_silent_store_is_asked_for(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    """None of those that were asked for in vain stays taken."""
    heap, cluster = heap_and_other
    for kind in KINDS:
        with stopped(cluster, 2), interrupted_by(kind):
            heap.atomic_alloc_value(1)
        assert heap.atomic_alloc_value(1) == 0, mf.get_last_err_msg()
        assert heap.atomic_release_value(0) == 0, mf.get_last_err_msg()


@pytest.fixture
def pool_and_store(store_url: str) -> Iterator[tuple[bm.BigMemory, Cluster]]:
    """A pool of this process that has not joined; worker 0 runs the store."""
    with Cluster(1, "support.heap_worker") as cluster:
        cluster.call(0, "serve_store", store_url)
        config = bm.BmConfig()
        config.start_store = False
        config.create_timeout = config.operation_timeout = 60
        assert bm.initialize(store_url, 2, 0, config) == 0, mf.get_last_err_msg()
        yield bm.create(0, LONG), cluster
        bm.uninitialize()


def test_create_of_a_heap_with_a_silent_store(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    _, cluster = heap_and_other
    for kind in KINDS:
        with stopped(cluster, 2), interrupted_by(kind):
            shm.create(1, 1, 0, 2 << 20)
    shm.create(1, 1, 0, 2 << 20).destroy()


def test_create_of_a_pool_with_a_silent_store(pool_and_store: tuple[bm.BigMemory, Cluster]) -> None:
    _, cluster = pool_and_store
    for kind in KINDS:
        with stopped(cluster, 0), interrupted_by(kind):
            bm.create(1, 2 << 20)
    bm.create(1, 2 << 20).destroy()


def test_create_that_waits_for_a_rank(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    _, cluster = heap_and_other
    for kind in KINDS:
        with interrupted_by(kind):
            shm.create(1, 2, 0, 2 << 20)
    coming = cluster.begin(1, "create", 2, 1)
    with shm.create(1, 2, 0, 2 << 20) as other:
        assert coming.result() == other.gva
    cluster.call(1, "destroy", 1)


def test_join_with_a_silent_store(pool_and_store: tuple[bm.BigMemory, Cluster]) -> None:
    pool, cluster = pool_and_store
    for kind in KINDS:
        with stopped(cluster, 0), interrupted_by(kind):
            pool.join()
        assert pool.join() == 0, mf.get_last_err_msg()
        assert pool.leave() == 0, mf.get_last_err_msg()


def test_initialize_with_a_silent_store(store_url: str) -> None:
    config = bm.BmConfig()
    config.start_store = False
    config.init_timeout = 60
    with Cluster(1, "support.heap_worker") as cluster:
        cluster.call(0, "serve_store", store_url)
        for kind in KINDS:
            with stopped(cluster, 0), interrupted_by(kind):
                bm.initialize(store_url, 2, 0, config)
        assert bm.initialize(store_url, 2, 0, config) == 0, mf.get_last_err_msg()
        bm.uninitialize()


SHAPES: dict[str, Callable[[RaisingHandler], Handler]] = {
    "function": lambda raising: lambda number, frame: raising.handle(number, frame),
    "method": lambda raising: raising.handle,
    "object": lambda raising: raising,
    "partial": lambda raising: functools.partial(RaisingHandler.handle, raising),
    "partial of a method": lambda raising: functools.partial(raising.handle),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_handlers_of_every_shape(shape: str) -> None:
    @boundary.returns_code
    def wait() -> None:
        time.sleep(SOON_S)

    with interrupted_by(Raised, SHAPES[shape]):
        wait()


# ---- copies ---------------------------------------------------------------------------------------------------------


def test_long_copies(pool_and_store: tuple[bm.BigMemory, Cluster]) -> None:
    """The handler runs once the copy is done: what it raises comes out instead of the code."""
    pool, _ = pool_and_store
    assert pool.join() == 0, mf.get_last_err_msg()
    plain = ctypes.create_string_buffer(b"x" * LONG, LONG)
    place = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
    for kind in KINDS:
        with interrupted_by(kind):
            while True:
                assert pool.copy_data(ctypes.addressof(plain), place, LONG, bm.BmCopyType.H2G) == 0
    assert pool.copy_data(ctypes.addressof(plain), place, LONG, bm.BmCopyType.H2G) == 0, mf.get_last_err_msg()


# ---- not a handler's -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not TypeError])
def test_what_our_own_code_raises_is_still_a_code(kind: type[Exception]) -> None:
    """Also while the program has a handler that could raise it. Wrong types pass in any case, as documented."""

    @boundary.returns_code
    def fail() -> None:
        raise kind("a defect of ours")

    with alarm(RaisingHandler(kind), after_s=60):
        assert fail() < 0
    assert "a defect of ours" in mf.get_last_err_msg()
