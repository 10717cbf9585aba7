"""Connections of other hosts take half of a process's descriptors at most, whoever makes them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import pytest

from fuzz import data_wire
from memfabric_hybrid import TransDataOpType
from memfabric_hybrid.clock import Deadline
from support.workers import Cluster

pytestmark = pytest.mark.plain_store("its strangers speak frames")
LIMIT = 200
SIZE = 4096
SOON_S = 20.0
Dial = Callable[[contextlib.ExitStack], tuple[int, bytes]]


def frame(caller: socket.socket) -> tuple[int, bytes]:
    """(kind, payload)."""
    found = caller.makefile("rb")
    _, _, kind, size = data_wire.FRAME.unpack(found.read(data_wire.FRAME.size))
    return kind, found.read(size)


def attach(session: str, held: contextlib.ExitStack) -> tuple[int, bytes, bytes]:
    """As an initiator of another host: what is answered, and the engine's instance."""
    host, _, port = session.rpartition(":")
    link = held.enter_context(socket.create_connection((host, int(port)), SOON_S))
    link.sendall(data_wire.frame(data_wire.HELLO))
    _, welcome = frame(link)
    instance, secret = welcome[-32:-16], welcome[-16:]
    link.sendall(data_wire.frame(data_wire.ATTACH_REMOTE, secret + bytes(16) + b"\x08stranger"))
    return *frame(link), instance


def control_links(session: str, held: contextlib.ExitStack) -> Dial:
    return lambda held: attach(session, held)[:2]


def data_connections(session: str, held: contextlib.ExitStack) -> Dial:
    kind, accepted, instance = attach(session, held)
    assert kind == data_wire.ACCEPTED_REMOTE
    secret_at = 1 + accepted[0] + 2
    greeting = data_wire.frame(data_wire.CONNECT, instance + accepted[secret_at : secret_at + 16])
    host, _, port = session.rpartition(":")

    def dial(held: contextlib.ExitStack) -> tuple[int, bytes]:
        caller = held.enter_context(socket.create_connection((host, int(port)), SOON_S))
        caller.sendall(greeting)
        return frame(caller)

    return dial


@pytest.mark.parametrize("kind", [control_links, data_connections])
def test_strangers_leave_the_process_its_own(kind: Callable[[str, contextlib.ExitStack], Dial]) -> None:
    with Cluster(2, "support.transfer_worker") as cluster, contextlib.ExitStack() as strangers:
        session = cluster.call(0, "start")
        address = cluster.call(0, "open_memory", "target", SIZE)
        cluster.call(1, "start", data_op_type=TransDataOpType.HOST_TCP)
        cluster.call(1, "open_memory", "source", SIZE)
        assert cluster.call(1, "write", session, "source", address, SIZE) == (0, "")
        cluster.call(0, "limit_descriptors", LIMIT)
        dial = kind(session, strangers)
        let_in = 0
        while (answer := dial(strangers))[0] != data_wire.REFUSED:
            let_in += 1
            assert let_in < LIMIT
        assert LIMIT // 2 - 8 < let_in <= LIMIT // 2
        assert b"half of its limit of open files; raise that (ulimit -n, now 200)" in answer[1]
        assert cluster.call(1, "write", session, "source", address, SIZE) == (0, ""), "who was there goes on"
        assert cluster.call(0, "spare_descriptors") > LIMIT // 4
        strangers.close()
        deadline = Deadline(SOON_S)
        with contextlib.ExitStack() as newcomer:
            while attach(session, newcomer)[0] != data_wire.ACCEPTED_REMOTE:
                assert not deadline.expired
