"""The peer-down callback: whatever it does, and however long it takes, the engine, its end and later events go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import logs
from support import leaks
from support.pause_points import held
from support.programs import run_python
from support.workers import Cluster

LONG_S = 20.0  # far more than anything here takes, far less than for ever
Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


def begin(call: Callable[[], object]) -> threading.Thread:
    """On a thread that cannot keep the tests from ending."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def ends(thread: threading.Thread) -> bool:
    """Whether it ends at all."""
    thread.join(LONG_S)
    return not thread.is_alive()


def sockets() -> int:
    """How many this process has."""
    return sum(target.startswith("socket:") for target in leaks.Snapshot.take().descriptors.values())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def lose_peers(engine: mf.TransferEngine, cluster: Cluster, *indices: int) -> list[str]:
    """The engine meets these workers, then they are killed; their sessions."""
    sessions = [cluster.call(index, "start") for index in indices]
    for session in sessions:
        must(engine.send_probe(session))
    for index in indices:
        cluster.kill(index)
    return sessions


@contextmanager
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    mf.set_extern_logger(lambda level, text: lines.append(text))
    try:
        yield lines
    finally:
        logs.handler.extern = None


def test_destroy_while_a_callback_runs_and_the_rest_is_told(engine: mf.TransferEngine, workers: Workers) -> None:
    """The callback returns while destroy waits for it. What was noticed before the end is told, nothing twice."""
    heard: list[str] = []
    inside, go_on, all_heard = threading.Event(), threading.Event(), threading.Event()

    def callback(session: str) -> None:
        heard.append(session)
        inside.set()
        assert go_on.wait(LONG_S)
        if len(heard) == 2:
            all_heard.set()

    engine.set_peer_down_callback(callback)
    with workers(2) as cluster:
        before = sockets()
        session = cluster.call(0, "start")
        must(engine.send_probe(session))
        other = cluster.call(1, "start")
        must(engine.send_probe(other))
        cluster.kill(0)
        assert inside.wait(LONG_S)
        cluster.kill(1)
        wait_until(lambda: sockets() == before)  # a peer's socket is closed after its end was noted
        with held("transfer.destroy.closed") as point:
            destroying = begin(engine.destroy)
            point.wait_until_reached()
            go_on.set()
        assert ends(destroying)
        assert all_heard.wait(LONG_S)
        assert heard == [session, other]


def test_callback_that_never_returns_is_left_behind(engine: mf.TransferEngine, workers: Workers) -> None:
    inside, go_on = threading.Event(), threading.Event()
    first: list[str] = []
    second: list[str] = []
    heard_again = threading.Event()

    def stuck(session: str) -> None:
        first.append(session)
        inside.set()
        go_on.wait()

    def listen(session: str) -> None:
        second.append(session)
        heard_again.set()

    engine.set_peer_down_callback(stuck)
    with workers(2) as cluster, logged() as lines:
        lost = lose_peers(engine, cluster, 0)
        assert inside.wait(LONG_S)
        assert ends(begin(engine.destroy))
        assert any("peer-down callback" in line and "left behind" in line for line in lines)
        # A new life has a callback thread of its own, while the old one is still inside.
        engine.set_peer_down_callback(listen)
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        lost_again = lose_peers(engine, cluster, 1)
        assert heard_again.wait(LONG_S)
        go_on.set()
        engine.destroy()
    assert (first, second) == (lost, lost_again)


def by_name(engine: mf.TransferEngine, buffer: bytearray, name: str) -> object:
    def unregister() -> int:
        must(engine.register(buffer))
        return engine.unregister(buffer)

    def start_anew() -> int:
        engine.destroy()
        return engine.initialize(None, "127.0.0.1:0", "Prefill", 0)

    calls: dict[str, Callable[[], object]] = {
        "register": lambda: engine.register(buffer),
        "unregister": unregister,
        "set_peer_down_callback": lambda: engine.set_peer_down_callback(None),
        "destroy": engine.destroy,
        "destroy and initialize": start_anew,
    }
    return calls[name]()


@pytest.mark.parametrize(
    "name", ["register", "unregister", "set_peer_down_callback", "destroy", "destroy and initialize"]
)
def test_callback_may_call_anything_while_destroy_waits_for_it(
    engine: mf.TransferEngine, workers: Workers, name: str
) -> None:
    inside, destroying, returned = threading.Event(), threading.Event(), threading.Event()
    results: list[object] = []
    buffer = bytearray(4096)

    def callback(session: str) -> None:
        inside.set()
        assert destroying.wait(LONG_S)
        results.append(by_name(engine, buffer, name))
        returned.set()

    engine.set_peer_down_callback(callback)
    with workers(1) as cluster:
        lose_peers(engine, cluster, 0)
        assert inside.wait(LONG_S)
        with held("transfer.destroy.closed") as point:
            destruction = begin(engine.destroy)
            point.wait_until_reached()
            destroying.set()
        assert ends(destruction)
        assert returned.wait(LONG_S)
        assert results in ([0], [None])
        assert ends(begin(engine.destroy))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_a_callback_raises_later_peers_are_told(
    engine: mf.TransferEngine, workers: Workers, error: type[BaseException]
) -> None:
    heard: list[str] = []
    both = threading.Event()

    def callback(session: str) -> None:
        heard.append(session)
        if len(heard) == 2:
            both.set()
        raise error("on purpose")

    engine.set_peer_down_callback(callback)
    with workers(2) as cluster, logged() as lines:
        sessions = lose_peers(engine, cluster, 0) + lose_peers(engine, cluster, 1)
        assert both.wait(LONG_S)
        engine.destroy()
    assert heard == sessions
    told = [line for line in lines if "peer-down callback" in line and error.__name__ in line and "ignored" in line]
    assert len(told) == 2


STUCK = """
import sys, threading
import memfabric_hybrid as mf

inside = threading.Event()
def never_returns(session):
    inside.set()
    threading.Event().wait()

engine, peer = mf.TransferEngine(), mf.TransferEngine()
for one in (engine, peer):
    assert one.initialize(None, "127.0.0.1:0", "Prefill", 0) == 0, mf.get_last_err_msg()
engine.set_peer_down_callback(never_returns)
assert engine.send_probe(peer.session_id) == 0
peer.destroy()
assert inside.wait(10)
print("inside", flush=True)
"""


@pytest.mark.parametrize("ending", ["", "engine.destroy()", "mf.uninitialize()"])
def test_program_ends_although_a_callback_never_returns(ending: str) -> None:
    done = run_python(STUCK + ending)
    assert (done.returncode, done.stdout) == (0, "inside\n")
    assert "left behind" in done.stderr


def test_destroy_interrupts_an_initialize_that_waits_for_a_store(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_TRANSFER_TIMEOUT", "60000")
    engine = mf.TransferEngine()
    results: list[tuple[int, str]] = []

    def initialize() -> None:
        results.append((engine.initialize(store_url, "a-name", "Prefill", 0), mf.get_last_err_msg()))

    thread = threading.Thread(target=initialize, daemon=True)
    thread.start()
    while not engine.session_id:  # it listens, and looks for the store
        assert thread.is_alive()
    assert ends(begin(engine.destroy))
    thread.join(LONG_S)
    assert [code for code, _ in results] == [-2008]
    assert "was destroyed while initialize()" in results[0][1]
    must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
    engine.destroy()
