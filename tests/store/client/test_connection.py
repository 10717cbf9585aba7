"""One connection to the store: how long it waits, and how it ends."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from memfabric_hybrid import clock
from memfabric_hybrid.store import parse_url
from memfabric_hybrid.store.client.connection import AnswerLate, Connection
from memfabric_hybrid.store.limits import KIB
from store.worlds import PATIENCE_S


class Silent(socket.socket):
    """Counts how often somebody waited for it in vain."""

    waits = 0

    def recv(self, *arguments: int) -> bytes:
        try:
            return super().recv(*arguments)
        except BlockingIOError:
            self.waits += 1
            raise


def test_answer_that_does_not_come_is_waited_for_once() -> None:
    here, there = socket.socketpair()
    with Silent(fileno=here.detach()) as silent, there:
        now = clock.now()
        with pytest.raises(AnswerLate):
            Connection(silent, "peer", parse_url("tcp://127.0.0.1:1")).exchange(b"request", now + 0.1, now)
        assert silent.waits == 1


@pytest.mark.parametrize("is_taken_back", [False, True])
def test_what_is_taken_back_arrives_no_more(is_taken_back: bool) -> None:
    """The other side reads nothing until the connection is closed, so that most of it is still here then."""
    data = bytes(128 * KIB)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * KIB)
        here = socket.create_connection(listener.getsockname())
        here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(data))
        there, _ = listener.accept()
        connection = Connection(here, "peer", parse_url("tcp://127.0.0.1:1"))
        with there:
            connection.send(data, clock.now() + PATIENCE_S)
            if is_taken_back:
                connection.take_back()
            connection.close()
            there.settimeout(PATIENCE_S)
            arrived_bytes = 0
            with suppress(ConnectionResetError):
                while received := there.recv(len(data)):
                    arrived_bytes += len(received)
    assert (arrived_bytes < len(data)) == is_taken_back
