"""Transfers beside the program: those of one session in order, those of several beside each other."""

from __future__ import annotations

import ctypes
import socket

import pytest

import memfabric_hybrid as mf

WORD = 8


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "60000")


@pytest.mark.usefixtures("patient")  # before the engine
def test_a_peer_that_does_not_answer_holds_up_nobody_else(engine: mf.TransferEngine) -> None:
    there = engine.trans_malloc(2 * WORD)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        session = f"127.0.0.1:{silent.getsockname()[1]}"
        stuck = engine.submit_write(session, b"never", there)
        behind = engine.submit_write(session, b"never", there)
        engine.submit_write(engine.session_id, b"at once", there + WORD).result(20)
        assert not stuck.done
        assert not behind.done
    assert stuck.wait(20) not in (0, -2004)  # now it has hung up
    assert behind.wait(20) not in (0, -2004)
    assert ctypes.string_at(there, 2 * WORD) == bytes(WORD) + b"at once\0"


def test_the_last_one_for_a_session_writes_last(engine: mf.TransferEngine) -> None:
    there = engine.trans_malloc(WORD)
    for _ in range(20):
        tickets = [engine.submit_write(engine.session_id, bytes([value] * WORD), there) for value in range(1, 51)]
        tickets[-1].result(20)
        assert all(ticket.done for ticket in tickets)
        assert ctypes.string_at(there, WORD) == bytes([50] * WORD)
