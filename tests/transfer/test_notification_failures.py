"""Notifications when somebody dies, stands still, or sends what nobody should: nothing hangs, nobody else is harmed."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

import memfabric_hybrid as mf
from support.pause_points import held
from support.threads import Beside, wait_until
from support.workers import Cluster

Workers = Callable[..., AbstractContextManager[Cluster]]
OP_TYPES = [mf.TransDataOpType.SDMA, mf.TransDataOpType.HOST_TCP]
HEADER = struct.Struct("<IHHI")
MAGIC, VERSION = 0x5458464D, 4
HELLO, ATTACH_REMOTE, ACCEPTED_REMOTE, NOTIFY, NOTIFIED = 1, 10, 11, 12, 13


def must(code: int) -> None:
    assert code == 0, f"{code}: {mf.get_last_err_msg()}"


@pytest.fixture(params=OP_TYPES, ids=["one host", "tcp"])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[mf.TransferEngine]:
    """Waits far longer than any test here takes."""
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100000")
    with mf.TransferEngine() as engine:
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0, request.param))
        yield engine


def test_the_receiver_is_killed_while_it_is_notified(sender: mf.TransferEngine, workers: Workers) -> None:
    """It stands still with the notification in its socket, so that the sender certainly waits when it dies."""
    with workers(1) as cluster:
        session = cluster.call(0, "start")
        must(sender.send_probe(session))
        cluster.kill(0, signal.SIGSTOP)
        with held("transfer.notify.sent") as point:
            notifying = Beside(lambda: (sender.notify(session, b"x" * 32768), mf.get_and_clear_last_err_msg()))
            point.wait_until_reached()
        cluster.kill(0)
        code, sentence = notifying.result()
        assert code == -2014
        assert session in sentence
        cluster.start(0)
        cluster.call(0, "start", session)
        wait_until(lambda: sender.notify(session, b"again") == 0)
        assert cluster.call(0, "wait_for_notifications", 1) == [(sender.session_id, b"again")]


def test_the_sender_is_killed_while_it_notifies(engine: mf.TransferEngine, workers: Workers) -> None:
    """What it was told is there is there, each once; others go on."""
    with workers(2) as cluster:
        sessions = cluster.call_all("start")
        numbers: list[int] = []
        cluster.call(0, "notify_without_end", engine.session_id)
        wait_until(lambda: len(numbers) >= 200 or bool(numbers.extend(taken(engine, sessions[0]))))  # type: ignore[func-returns-value]
        cluster.kill(0)
        cluster.call(1, "notify_many", engine.session_id, 100)
        rest = engine.notifications()
        numbers += [int(n.data) for n in rest if n.session == sessions[0]]
        assert numbers == list(range(len(numbers)))
        assert [int(n.data) for n in rest if n.session == sessions[1]] == list(range(100))


def taken(engine: mf.TransferEngine, session: str) -> list[int]:
    notifications = engine.notifications()
    assert all(notification.session == session for notification in notifications)
    return [int(notification.data) for notification in notifications]


def test_a_sender_killed_between_write_and_notification_has_told_nothing(
    engine: mf.TransferEngine, workers: Workers
) -> None:
    memory = bytearray(4096)
    must(engine.register(memory))
    there = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    with workers(1) as cluster:
        cluster.call(0, "start")
        cluster.call(0, "open_memory", "source", 4096)
        cluster.call(0, "stand_before_notifying", engine.session_id, "source", there, 4096)
        cluster.kill(0)
        cluster.start(0)
        cluster.call(0, "start")
        cluster.call(0, "notify_many", engine.session_id, 1)
        assert [notification.data for notification in engine.notifications()] == [b"0"]


def test_a_receiver_that_stands_still_is_a_time_out(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sockets took arrives when it goes on, in its order; what they did not take was refused as not sent."""
    monkeypatch.setenv("MF_TRANSFER_TIMEOUT_MS", "100")
    with workers(1) as cluster, mf.TransferEngine() as engine:
        must(engine.initialize(None, "127.0.0.1:0", "Prefill", 0))
        session = cluster.call(0, "start")
        wait_until(lambda: engine.send_probe(session) == 0)
        mf.get_and_clear_last_err_msg()
        cluster.kill(0, signal.SIGSTOP)
        data = bytes(32760)
        number, sentence = 0, ""
        while "nothing was sent" not in sentence:
            assert engine.notify(session, data + struct.pack("<Q", number)) == -2004
            sentence = mf.get_and_clear_last_err_msg()
            assert "nothing was sent" in sentence or "may still arrive" in sentence
            number += 1
        cluster.kill(0, signal.SIGCONT)
        wait_until(lambda: engine.notify(session, b"last") == 0)
        heard = [data for _, data in cluster.call(0, "wait_for_notifications", number)]
        assert [struct.unpack("<Q", one[-8:])[0] for one in heard if one[:-8] == data] == list(range(number - 1))
        assert heard[-1] == b"last"


# ---- peers that speak the protocol themselves ----------------------------------------------------------------------


def frame(kind: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(MAGIC, VERSION, kind, len(payload)) + payload


def receive(peer: socket.socket) -> tuple[int, bytes]:
    """The next frame; (0, b"") at the end."""
    received = b""
    while len(received) < HEADER.size or len(received) < HEADER.size + HEADER.unpack(received[: HEADER.size])[3]:
        try:
            more = peer.recv(4096)
        except ConnectionResetError:
            return 0, b""
        if not more:
            return 0, b""
        received += more
    return HEADER.unpack(received[: HEADER.size])[2], received[HEADER.size :]


@contextmanager
def connected(engine: mf.TransferEngine) -> Iterator[tuple[socket.socket, bytes]]:
    """A stranger's connection, and the secret of the session."""
    with socket.create_connection(("127.0.0.1", engine.get_rpc_port())) as peer:
        peer.settimeout(20)
        peer.sendall(frame(HELLO))
        yield peer, receive(peer)[1][-16:]


@contextmanager
def attached(engine: mf.TransferEngine, session: bytes = b"hostile:1") -> Iterator[socket.socket]:
    with connected(engine) as (peer, secret):
        peer.sendall(frame(ATTACH_REMOTE, secret + os.urandom(16) + bytes([len(session)]) + session))
        assert receive(peer)[0] == ACCEPTED_REMOTE
        yield peer


def notify_frame(number: int, data: bytes) -> bytes:
    return frame(NOTIFY, struct.pack("<Q", number) + data)


@pytest.mark.plain_store("it speaks frames itself")
def test_a_peer_that_has_not_attached_cannot_notify(engine: mf.TransferEngine) -> None:
    with connected(engine) as (peer, _):
        peer.sendall(notify_frame(1, b"x"))
        assert receive(peer) == (0, b"")
    assert engine.notifications() == []


WRONG = {
    "too long": frame(NOTIFY, bytes(8 + 32769)),
    "without a number": frame(NOTIFY, b"short"),
    "an answer": frame(NOTIFIED, bytes(9)),
    "of another version": HEADER.pack(MAGIC, 1, NOTIFY, 9) + bytes(9),
    "of an unknown kind": frame(99),
    "noise": b"\xff" * 64,
}


@pytest.mark.plain_store("it speaks frames itself")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_malformed_ends_that_connection_only(engine: mf.TransferEngine, wrong: bytes) -> None:
    with attached(engine) as peer, attached(engine, b"good:1") as good:
        peer.sendall(notify_frame(7, b"well-formed"))
        assert receive(peer) == (NOTIFIED, struct.pack("<QB", 7, 0))
        peer.sendall(wrong)
        assert receive(peer) == (0, b"")
        good.sendall(notify_frame(8, b"still here"))
        assert receive(good) == (NOTIFIED, struct.pack("<QB", 8, 0))
    assert engine.notifications() == [("hostile:1", b"well-formed"), ("good:1", b"still here")]


@pytest.mark.plain_store("it speaks frames itself")
def test_a_sender_whose_name_is_no_text(engine: mf.TransferEngine) -> None:
    """It is shown as far as it can be; the callback that hears of its end lives on."""
    downs: list[str] = []
    engine.set_peer_down_callback(downs.append)
    for name in (b"\xff\xfe", b"good:1"):
        with attached(engine, name) as peer:
            peer.sendall(notify_frame(1, b"x"))
            assert receive(peer)[0] == NOTIFIED
    assert engine.notifications() == [("\\xff\\xfe", b"x"), ("good:1", b"x")]
    wait_until(lambda: downs == ["\\xff\\xfe", "good:1"])


def send_without_end(peer: socket.socket, engine: mf.TransferEngine) -> None:
    while True:
        peer.sendall(notify_frame(1, b"") * 100)
        engine.notifications()


@pytest.mark.plain_store("it speaks frames itself")
def test_a_peer_that_takes_no_answers_holds_up_nobody(engine: mf.TransferEngine) -> None:
    """It floods until its own socket is full: it is not listened to until it takes its answers. Others are."""
    with attached(engine) as flood, mf.TransferEngine() as other:
        flood.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        flood.settimeout(1)
        with pytest.raises(TimeoutError):
            send_without_end(flood, engine)
        must(other.initialize(None, "127.0.0.1:0", "Prefill", 0))
        engine.notifications()
        must(other.notify(engine.session_id, b"a word"))
        assert (other.session_id, b"a word") in engine.notifications()


@pytest.mark.plain_store("it speaks frames itself")
def test_an_answer_that_nobody_asked_for(engine: mf.TransferEngine) -> None:
    """A target that answers with nonsense: the call fails, and the next target is well."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        session = f"127.0.0.1:{listener.getsockname()[1]}"
        with mf.TransferEngine() as sender:
            must(sender.initialize(None, "127.0.0.1:0", "Prefill", 0))
            notifying = Beside(lambda: sender.notify(session, b"x"))
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(20)
                assert receive(peer)[0] == HELLO
                peer.sendall(frame(2, b"\x05other\x04name" + bytes(32)))  # on another host
                assert receive(peer)[0] == ATTACH_REMOTE
                peer.sendall(frame(ACCEPTED_REMOTE, b"\x00" + struct.pack("<H", 0) + bytes(16) + bytes(4)))
                kind, payload = receive(peer)
                assert (kind, payload[8:]) == (NOTIFY, b"x")
                peer.sendall(frame(NOTIFIED, struct.pack("<QB", 999, 0)))  # to another one: not ours
                peer.sendall(frame(NOTIFIED, payload[:8] + b"\xff"))  # no verdict
                assert notifying.result() == -2014
            must(sender.notify(engine.session_id, b"x"))
