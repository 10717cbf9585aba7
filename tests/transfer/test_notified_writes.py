"""Writes that notify: the word comes when every byte is there, by whichever call and on whichever route, or never."""

from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

import memfabric_hybrid as mf
from memfabric_hybrid import _native, errors
from support.pause_points import held
from support.threads import LONG_S, Beside, wait_until
from support.workers import Cluster

SIZE = 8 << 20
TURNS = 60
Workers = Callable[..., AbstractContextManager[Cluster]]


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


def next_notification(engine: mf.TransferEngine) -> bytes:
    deadline = time.monotonic() + LONG_S
    while not (taken := engine.notifications()):
        assert time.monotonic() < deadline
    assert len(taken) == 1
    return taken[0].data


@pytest.mark.parametrize("route", ["mapped", "peer_process", "tcp"])
def test_all_bytes_are_there_when_it_comes(engine: mf.TransferEngine, workers: Workers, route: str) -> None:
    """The peer looks at its memory the moment it hears, turn after turn, with every call that can notify."""
    op_type = mf.TransDataOpType.HOST_TCP if route == "tcp" else mf.TransDataOpType.SDMA
    if route == "mapped":
        address = engine.trans_malloc(SIZE)
        assert address, mf.get_last_err_msg()
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * SIZE).from_address(address))
    else:
        memory = np.zeros(SIZE, np.uint8)
        must(engine.register(memory))
    with workers(1) as cluster:
        session = cluster.call(0, "start", data_op_type=op_type)
        if route != "mapped":
            assert cluster.call(0, "route", engine.session_id)[0] == route
        writing = cluster.begin(0, "write_turns", engine.session_id, memory.ctypes.data, SIZE, TURNS)
        for turn in range(1, TURNS + 1):
            assert next_notification(engine) == b"%d" % turn
            assert (memory == turn % 100).all()
            must(engine.notify(session, b"%d" % turn))
        writing.result()


def test_a_write_that_fails_notifies_nobody(engine: mf.TransferEngine) -> None:
    here = ctypes.create_string_buffer(64)
    memory = bytearray(64)
    must(engine.register(memory))
    there = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    own = ctypes.addressof(here)
    session = engine.session_id
    assert engine.transfer_sync_write(session, own, there, 65, notify=b"no") == -2000
    assert engine.batch_transfer_sync_write(session, [own, own], [there, there + 60], [4, 5], notify=b"no") == -2000
    assert engine.submit_write(session, own, there, 65, notify=b"no").wait(LONG_S) == -2000
    with mf.Stream() as stream:
        must(engine.transfer_async_write_submit(session, own, there, 65, stream, notify=b"no"))
        assert stream.wait() == -2000
    assert engine.notifications() == []
    must(engine.transfer_sync_write(session, own, there, 64, notify=None))
    assert engine.notifications() == []


def test_a_notification_that_is_too_long_moves_nothing(engine: mf.TransferEngine) -> None:
    here = ctypes.create_string_buffer(b"x" * 64, 64)
    memory = bytearray(64)
    must(engine.register(memory))
    there = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    own, session = ctypes.addressof(here), engine.session_id
    long = bytes(_native.MAX_NOTIFICATION_BYTES + 1)
    assert engine.transfer_sync_write(session, own, there, 64, notify=long) == -2000
    assert engine.batch_transfer_sync_write(session, [own], [there], [64], notify=long) == -2000
    with mf.Stream() as stream:
        assert engine.transfer_async_write_submit(session, own, there, 64, stream, notify=long) == -2000
        assert engine.batch_transfer_async_write_submit(session, [own], [there], [64], stream, notify=long) == -2000
    with pytest.raises(errors.InvalidParam, match="at most 32768"):
        engine.submit_write(session, own, there, 64, notify=long)
    assert memory == bytes(64)
    with pytest.raises(TypeError, match=r"transfer_sync_write\(\): notify must be bytes-like"):
        engine.transfer_sync_write(session, own, there, 64, notify="text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"submit_write\(\): notify must be bytes-like"):
        engine.submit_write(session, own, there, 64, notify=7)  # type: ignore[arg-type]


def test_bytes_without_their_notification_are_told(engine: mf.TransferEngine) -> None:
    """The queue is full: the bytes are there all the same, and the sentence says so."""
    here = ctypes.create_string_buffer(b"y" * 64, 64)
    memory = bytearray(64)
    must(engine.register(memory))
    there = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    longest = bytes(_native.MAX_NOTIFICATION_BYTES)
    for _ in range(_native.MAX_QUEUED_NOTIFICATION_BYTES // len(longest)):
        must(engine.notify(engine.session_id, longest))
    ticket = engine.submit_write(engine.session_id, ctypes.addressof(here), there, 64, notify=b"word")
    assert ticket.wait(LONG_S) == -2002
    sentence = mf.get_and_clear_last_err_msg()
    assert "all 64 bytes were written, but the notification was not delivered" in sentence
    assert "its queue is full" in sentence
    assert memory == b"y" * 64


def test_a_ticket_is_done_after_both(engine: mf.TransferEngine) -> None:
    here = ctypes.create_string_buffer(b"z" * 64, 64)
    memory = bytearray(64)
    must(engine.register(memory))
    there = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with held("transfer.notify.written") as point:
        ticket = engine.submit_write(engine.session_id, ctypes.addressof(here), there, 64, notify=b"word")
        point.wait_until_reached()
        assert memory == b"z" * 64
        assert not ticket.done
        assert engine.notifications() == []
    must(ticket.wait(LONG_S))
    assert engine.notifications() == [(engine.session_id, b"word")]


def test_who_came_in_the_peers_place_is_not_told(engine: mf.TransferEngine, workers: Workers) -> None:
    """The peer has the bytes and is killed; its successor has the session, but not the bytes."""
    here = ctypes.create_string_buffer(64)
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        there = cluster.call(0, "open_memory", "target", 4096)
        must(engine.send_probe(session))
        with held("transfer.notify.written") as point:
            writing = Beside(
                lambda: (
                    engine.transfer_sync_write(session, ctypes.addressof(here), there, 64, notify=b"word"),
                    mf.get_and_clear_last_err_msg(),
                )
            )
            point.wait_until_reached()
            cluster.kill(0)
            cluster.start(0)
            assert cluster.call(0, "start", session) == session
            wait_until(
                lambda: engine.send_probe(session) == 0
            )  # what it learns of the dead one may come a moment later
        code, sentence = writing.result()
        assert code == -2014
        assert "all 64 bytes were written, but the notification was not delivered" in sentence
        assert cluster.call(0, "wait_for_notifications", 1, 0.0) == []
        must(engine.notify(session, b"to the successor"))
        assert cluster.call(0, "wait_for_notifications", 1) == [(engine.session_id, b"to the successor")]


def test_destroy_does_not_wait_for_an_answer(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ticket's bytes are there and its peer stands still: the engine ends long before the time-out."""
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
    here = ctypes.create_string_buffer(64)
    with workers(1) as cluster, mf.TransferEngine() as engine:
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        session = cluster.call(0, "start")
        there = cluster.call(0, "open_memory", "target", 4096, "arena")
        must(engine.send_probe(session))
        cluster.kill(0, signal.SIGSTOP)
        with held("transfer.notify.sent") as point:
            ticket = engine.submit_write(session, ctypes.addressof(here), there, 64, notify=b"word")
            point.wait_until_reached()
        Beside(engine.destroy).result()
        assert ticket.wait(LONG_S) == -2014
        assert "this engine was destroyed before the answer came" in mf.get_and_clear_last_err_msg()
