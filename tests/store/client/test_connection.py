"""One connection to the store: how long it waits, and how it ends."""

from __future__ import annotations

import socket

import pytest

from memfabric_hybrid import clock
from memfabric_hybrid.store import parse_url
from memfabric_hybrid.store.client.connection import AnswerLate, Connection


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
