"""Peers that stop, compute, die or restart: every failure is an answer in time."""

from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import memfabric_hybrid as mf
from support import campaigns
from support.held_gil import held_gil
from support.workers import Cluster

MIB = 1 << 20
Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


@pytest.fixture
def own() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(b"\x42" * MIB, MIB)


@pytest.mark.parametrize("kind", ["private", "arena"])
def test_a_stopped_target_serves(engine: mf.TransferEngine, workers: Workers, own: ctypes.Array, kind: str) -> None:  # type: ignore[type-arg]
    with workers(1) as cluster:
        session, address = cluster.call(0, "start"), cluster.call(0, "open_memory", "m", MIB, kind)
        must(engine.send_probe(session))
        cluster.kill(0, signal.SIGSTOP)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB))
        must(engine.send_probe(session))
        back = ctypes.create_string_buffer(MIB)
        must(engine.transfer_sync_read(session, ctypes.addressof(back), address, MIB))
        assert back.raw == own.raw
        cluster.kill(0, signal.SIGCONT)
        assert cluster.call(0, "load", "m") == own.raw


def test_a_target_that_holds_the_gil_serves(
    engine: mf.TransferEngine,
    workers: Workers,
    own: ctypes.Array,  # type: ignore[type-arg]
) -> None:
    """The first contact, and all that follows, is served while its Python does not run."""
    with workers(1) as cluster, mf.TransferEngine() as late:
        session = cluster.call(0, "start")
        places = [cluster.call(0, "open_memory", kind, MIB, kind) for kind in ("private", "arena")]
        with held_gil(cluster, 0):
            for _ in range(100):
                for address in places:
                    must(engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB))
            must(late.initialize(None, "127.0.0.1:0", "Prefill", 0))
            must(late.transfer_sync_write(session, ctypes.addressof(own), places[0], MIB))
        assert [cluster.call(0, "load", kind) for kind in ("private", "arena")] == [own.raw] * 2


def test_a_batch_of_which_a_part_was_written_fails_as_a_whole(
    engine: mf.TransferEngine,
    workers: Workers,
    own: ctypes.Array,  # type: ignore[type-arg]
) -> None:
    """One of the registered buffers was freed there: the sentence says how much was moved before that was noticed."""
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        good, bad = (cluster.call(0, "open_memory", name, 64 * 1024) for name in ("good", "bad"))
        here = ctypes.addressof(own)
        must(engine.batch_transfer_sync_write(session, [here, here], [good, bad], [4096, 4096]))
        cluster.call(0, "close_memory", "bad")
        assert engine.batch_transfer_sync_write(session, [here, here], [good, bad], [4096, 4096]) == -2012
        assert "4096 of 8192 bytes were moved" in mf.get_last_err_msg()
        assert engine.batch_transfer_sync_read(session, [here, here + 4096], [good, bad], [4096, 4096]) == -2012
        with mf.Stream() as stream:
            must(engine.batch_transfer_async_write_submit(session, [here, here], [good, bad], [64, 64], stream))
            assert stream.wait() == -2012
        assert engine.submit_write(session, [here, here], [good, bad], [64, 64]).wait(10) == -2012
        assert engine.transfer_sync_write(session, here, bad, 64) == -2000
        must(engine.transfer_sync_write(session, here, good, 64))


def test_a_killed_target_fails_and_comes_back(engine: mf.TransferEngine, workers: Workers, own: ctypes.Array) -> None:  # type: ignore[type-arg]
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        address = cluster.call(0, "open_memory", "m", MIB)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB))
        cluster.kill(0)
        began = time.monotonic()
        assert engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB) == -2014
        assert engine.send_probe(session) == -2014
        assert time.monotonic() - began < 1
        cluster.start(0)
        assert cluster.call(0, "start", session) == session
        must(engine.send_probe(session))
        assert engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB) == -2000  # not registered yet
        address = cluster.call(0, "open_memory", "m", MIB)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB))
        assert cluster.call(0, "load", "m") == own.raw


def test_a_destroyed_target_is_gone_at_once(engine: mf.TransferEngine, workers: Workers, own: ctypes.Array) -> None:  # type: ignore[type-arg]
    with workers(1) as cluster:
        session, address = cluster.call(0, "start"), cluster.call(0, "open_memory", "m", MIB)
        must(engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB))
        cluster.call(0, "destroy")
        assert engine.transfer_sync_write(session, ctypes.addressof(own), address, MIB) == -2014
        assert cluster.call(0, "start", session) == session
        must(engine.send_probe(session))


def test_peer_down_callback(workers: Workers) -> None:
    """Both sides of a connection hear of the other's death, once; an orderly end counts, too."""
    with workers(3) as cluster:
        sessions = cluster.call_all("start")
        cluster.call_all("record_downs")
        for one, other in ((0, 1), (1, 0), (0, 2)):
            assert cluster.call(one, "call", "send_probe", sessions[other]) == (0, "")
        cluster.kill(1)
        assert cluster.call(0, "wait_for_downs", 1) == [sessions[1]]
        cluster.call(0, "destroy")
        assert cluster.call(2, "wait_for_downs", 1) == [sessions[0]]
        assert cluster.call(0, "wait_for_downs", 2, 0.1) == [sessions[1]]


def test_callback_that_raises_and_one_set_before_initialize(workers: Workers) -> None:
    heard: list[str] = []

    def callback(session: str) -> None:
        heard.append(session)
        raise RuntimeError("on purpose")

    lines: list[str] = []
    mf.set_extern_logger(lambda level, text: lines.append(text))
    engine = mf.TransferEngine()
    engine.set_peer_down_callback(callback)
    must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
    with workers(2) as cluster:
        sessions = cluster.call_all("start")
        for index in (0, 1):
            must(engine.send_probe(sessions[index]))
            cluster.kill(index)
            deadline = time.monotonic() + 10
            while len(heard) <= index and time.monotonic() < deadline:
                time.sleep(0.002)
    engine.destroy()
    mf.logs.handler.extern = None
    assert heard == sessions
    assert any("on purpose" in line for line in lines)


@pytest.mark.soak
def test_killed_and_restarted_under_load(workers: Workers) -> None:
    """The writer never waits longer than its time-out, never fails in another way, and always recovers by itself."""
    rounds = campaigns.length("MF_KILL_ROUNDS", 10)
    with workers(2) as cluster:
        cluster.call(0, "start", role="Prefill")
        session = cluster.call(1, "start")
        for turn in range(rounds):
            address = cluster.call(1, "open_memory", "m", 8 * MIB, ("private", "arena")[turn % 2])
            cluster.call(0, "start_writing", session, address, 8 * MIB, 2)
            deadline = time.monotonic() + 20
            while cluster.call(0, "written") < 3 and time.monotonic() < deadline:
                time.sleep(0.002)
            cluster.kill(1)
            assert cluster.call(0, "call", "send_probe", session)[0] == -2014
            cluster.start(1)
            assert cluster.call(1, "start", session) == session
            assert cluster.call(0, "call", "send_probe", session) == (0, "")
            for codes, longest_s, sentences in cluster.call(0, "stop_writing"):
                assert codes.get(0, 0) > 0, (codes, sentences)
                assert codes.keys() <= {0, -2012, -2014, -2000}, sentences
                assert longest_s < 4
