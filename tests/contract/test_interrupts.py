"""Signal handlers run inside every native wait, what they raise comes out, and the object stays usable.

Each wait here would last a minute or more without the signal. The handler raises an exception that nothing else does.
"""

from __future__ import annotations

import ctypes
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import bm, shm
from support import pause_points
from support.alarms import alarm, left_by_alarm
from support.ports import reserved_port
from support.threads import Beside
from support.workers import Cluster

ASYNC, USE_STREAM = 1, 4
LONG = 200 << 20  # more than a transfer moves at once

pytestmark = [
    pytest.mark.usefixtures("everything_off"),
    # A handler may raise just after a socket was opened, before anybody would close it: the collector does and says so.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Interrupted(BaseException):
    """What the handler of these tests raises."""


@contextmanager
def interrupted_by(handler: Callable[[], None] = lambda: None) -> Iterator[None]:
    """The block is left by the exception of a signal handler; `handler` runs first."""

    def handle(number: int, frame: object) -> None:
        handler()
        raise Interrupted

    with left_by_alarm(Interrupted, handle):
        yield


# ---- collectives ----------------------------------------------------------------------------------------------------


def test_barrier_is_left_and_has_not_happened(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, cluster = heap_and_other
    with interrupted_by():
        heap.barrier()
    other = cluster.begin(1, "call", "barrier")
    assert heap.barrier() == 0, mf.get_last_err_msg()
    assert other.result()[0] == 0


def test_handler_that_raises_nothing_lets_the_wait_go_on(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, cluster = heap_and_other
    others = []
    with alarm(lambda number, frame: others.append(cluster.begin(1, "call", "barrier"))):
        assert heap.barrier() == 0, mf.get_last_err_msg()
    assert others[0].result()[0] == 0


def test_round_that_completed_meanwhile_is_not_lost(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, cluster = heap_and_other
    whole = b"zero" + b"one!"
    with interrupted_by(lambda: cluster.call(1, "call", "all_gather", b"one!")):
        heap.all_gather(b"zero")
    assert heap.all_gather(b"zero") == whole  # the other rank does not come a second time
    other = cluster.begin(1, "call", "all_gather", b"more")
    assert heap.all_gather(b"next") == b"nextmore"
    assert other.result()[0] == b"nextmore"


def test_round_that_nobody_asks_for_again_counts_as_done(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, cluster = heap_and_other
    with interrupted_by(lambda: cluster.call(1, "call", "all_gather", b"one!")):
        heap.all_gather(b"zero")
    other = cluster.begin(1, "call", "barrier")
    assert heap.barrier() == 0, mf.get_last_err_msg()
    assert other.result()[0] == 0


def test_subgroups_are_left(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, cluster = heap_and_other
    with interrupted_by():
        heap.subgroup_barrier("pair", 2, 0)
    with interrupted_by():
        heap.subgroup_all_gather("pair", 2, 0, b"left")
    other = cluster.begin(1, "call", "subgroup_all_gather", "pair", 2, 1, b"rite")
    assert heap.subgroup_all_gather("pair", 2, 0, b"left") == b"leftrite"
    assert other.result()[0] == b"leftrite"


def test_handler_may_not_enter_the_round_it_interrupts(heap_and_other: tuple[shm.ShareMemory, Cluster]) -> None:
    heap, _ = heap_and_other
    codes = []
    with interrupted_by(lambda: codes.append(heap.barrier())):
        heap.barrier()
    assert codes == [-2004]
    assert "another call" in mf.get_last_err_msg()


# ---- queued work ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pool(store_url: str) -> bm.BigMemory:
    assert bm.initialize(store_url, 1, 0, bm.BmConfig()) == 0, mf.get_last_err_msg()
    pool = bm.create(0, 2 << 20)
    assert pool.join() == 0, mf.get_last_err_msg()
    return pool


def test_waiting_for_queued_copies_is_left(pool: bm.BigMemory) -> None:
    source = ctypes.create_string_buffer(b"later", 64)
    place = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
    with pause_points.held("stream.before_task"):
        assert pool.copy_data(ctypes.addressof(source), place, 5, bm.BmCopyType.H2G, ASYNC) == 0
        with interrupted_by():
            pool.wait()
    assert pool.wait() == 0, mf.get_last_err_msg()
    assert ctypes.string_at(place, 5) == b"later"


def test_waiting_for_a_stream_is_left(pool: bm.BigMemory) -> None:
    source = ctypes.create_string_buffer(b"later", 64)
    place = pool.peer_rank_ptr(0, bm.BmMemType.HOST)
    stream = mf.Stream()
    with pause_points.held("stream.before_task"):
        assert pool.copy_data(ctypes.addressof(source), place, 5, bm.BmCopyType.H2G, USE_STREAM, stream) == 0
        for wait in (stream.wait, lambda: stream.wait(100), stream.close):
            with interrupted_by():
                wait()
    assert stream.wait() == 0, mf.get_last_err_msg()
    assert ctypes.string_at(place, 5) == b"later"
    stream.close()


def test_waiting_for_a_ticket_is_left() -> None:
    source, target = ctypes.create_string_buffer(b"later", 64), ctypes.create_string_buffer(64)
    with mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        assert engine.register_memory(ctypes.addressof(target), 64) == 0, mf.get_last_err_msg()
        with pause_points.held("submissions.before_task"):
            ticket = engine.submit_write(engine.session_id, ctypes.addressof(source), ctypes.addressof(target), 5)
            with interrupted_by():
                ticket.wait()
        assert ticket.wait() == 0, mf.get_last_err_msg()
        assert target.value == b"later"


# ---- first contact --------------------------------------------------------------------------------------------------


def test_first_contact_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
    source = ctypes.create_string_buffer(64)
    with socket.create_server(("127.0.0.1", 0)) as silent, mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        session = f"127.0.0.1:{silent.getsockname()[1]}"
        with interrupted_by():
            engine.send_probe(session)
        with interrupted_by():
            engine.transfer_sync_write(session, ctypes.addressof(source), 4096, 8)
        with interrupted_by():
            engine.batch_transfer_sync_read(session, [ctypes.addressof(source)], [4096], [8])
        assert engine.send_probe(engine.session_id) == 0, mf.get_last_err_msg()


def test_first_contact_of_another_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one thread dials a session; this one waits for what comes of it."""
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
    with socket.create_server(("127.0.0.1", 0)) as silent, mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        session = f"127.0.0.1:{silent.getsockname()[1]}"
        dialling = Beside(lambda: engine.send_probe(session))
        connection = silent.accept()[0]
        with interrupted_by():
            engine.send_probe(session)
        assert dialling.runs
        connection.close()
        assert dialling.result() == -2014


def test_looking_for_a_store_is_left() -> None:
    with reserved_port() as port, interrupted_by():
        config = bm.BmConfig()
        config.start_store = False
        bm.initialize(f"tcp://127.0.0.1:{port}", 2, 0, config)
    assert bm.bm_rank_id() == 0xFFFFFFFF


def test_notifying_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer stands still. What was sent may arrive, and the next one does, behind it."""
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
    with Cluster(1, "support.transfer_worker") as cluster, mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        session = cluster.call(0, "start")
        assert engine.send_probe(session) == 0, mf.get_last_err_msg()
        cluster.kill(0, signal.SIGSTOP)
        codes: list[int] = []
        with interrupted_by(lambda: codes.append(engine.notify(session, b"from the handler"))):
            engine.notify(session, b"left")
        assert codes == [-2004]  # the turn is the interrupted call's
        cluster.kill(0, signal.SIGCONT)
        assert engine.notify(session, b"next") == 0, mf.get_last_err_msg()
        heard = [data for _, data in cluster.call(0, "wait_for_notifications", 2)]
        assert heard == [b"left", b"next"]


def test_taking_memory_back_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer stands still in the middle of a transfer into it. The registration has ended all the same."""
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
    with Cluster(1, "support.transfer_worker") as cluster, mf.TransferEngine() as engine:
        assert engine.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
        there = engine.trans_malloc(LONG)
        cluster.call(0, "start")
        cluster.call(0, "open_memory", "long", LONG)
        cluster.call(0, "stand_inside", engine.session_id, "long", there, LONG)
        for _ in range(2):  # who asks again waits again
            with interrupted_by():
                engine.unregister_memory(there)
        with interrupted_by():
            engine.trans_free(there)
        cluster.kill(0)
