"""Neighbours for tests of the exchange: one with an exchange that records what it heard, one that the test plays."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from memfabric_hybrid.address_space.exchange import Exchange, Neighbour
from memfabric_hybrid.address_space.messages import (
    Accept,
    Answer,
    Done,
    Offer,
    Refuse,
    Request,
    SegmentFact,
    Share,
    Withdraw,
)
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code
from memfabric_hybrid.machine.peer_credentials import OtherUser
from memfabric_hybrid.membership import rank_socket

THEIRS = 2002  # the instance of the scripted one


def share(instance: int, rank: int = 0) -> Share:
    return Share(rank, instance, 1, os.getpid(), 0, 0, "", 1, (SegmentFact(0, 0, 5),))


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    fd = os.memfd_create("exchange test")
    os.write(fd, content)
    try:
        yield fd
    finally:
        os.close(fd)


class RecordingNeighbour:
    """One side: an exchange, what it heard, and a file that it shows."""

    def __init__(self, instance: int) -> None:
        self.instance = instance
        self.name = f"test/{secrets.token_hex(8)}"
        self.heard: list[Request] = []
        self.seen: list[bytes] = []
        self.inheritable: list[bool] = []  # of every descriptor that arrived
        self.lost: list[int] = []
        self.told = threading.Event()
        self.failures: list[str] = []
        self.ticks = 0
        self.wanted_ticks = 0
        self.fd = os.memfd_create("shown")
        os.write(self.fd, f"of {instance}".encode())
        self.exchange = Exchange(
            rank_socket.bind(self.name), self.handle, self.on_lost, self.on_tick, self.failures.append
        )

    def handle(
        self, request: Request, fds: Sequence[int], other_user: OtherUser | None
    ) -> tuple[Answer, Sequence[int]]:
        if other_user is not None:
            return Refuse(int(Code.NOT_CONNECTED), other_user.answer), ()
        self.heard.append(request)
        self._look_at(fds)
        if isinstance(request, Withdraw):
            return Done(), ()
        return Accept(share(self.instance)), [os.dup(self.fd)]

    def on_lost(self, instance: int) -> None:
        self.lost.append(instance)
        self.told.set()

    def on_tick(self) -> bool:
        self.ticks += 1
        return self.ticks < self.wanted_ticks

    def address(self) -> Neighbour:
        return Neighbour(self.instance, self.instance, self.name)

    def ask(
        self, *others: Neighbour, timeout_s: float = 5.0, expected: Callable[[Neighbour], bool] = lambda _: True
    ) -> list[Answer | None]:
        replies = self.exchange.ask(
            others, Offer("bm/0", share(self.instance)), [self.fd], Deadline(timeout_s), expected
        )
        answers: list[Answer | None] = []
        for other in others:
            reply = replies[other]
            answers.append(reply.answer if reply else None)
            if reply:
                self._look_at(reply.fds)
                reply.close()
        return answers

    def _look_at(self, fds: Sequence[int]) -> None:
        self.seen += [os.pread(fd, 100, 0) for fd in fds]
        self.inheritable += [os.get_inheritable(fd) for fd in fds]

    def close(self) -> None:
        self.exchange.close(Deadline(5))
        os.close(self.fd)


MakeNeighbour = Callable[[int], RecordingNeighbour]  # by its instance


class ScriptedNeighbour:
    """A neighbour that does exactly what the test says: a bare listening socket."""

    def __init__(self, stack: ExitStack) -> None:
        self.name = f"test/{secrets.token_hex(8)}"
        self.listener = stack.enter_context(rank_socket.bind(self.name))
        self.listener.setblocking(True)
        self._stack = stack
        self.address = Neighbour(7, THEIRS, self.name)

    def accept(self) -> socket.socket:
        return self._stack.enter_context(self.listener.accept()[0])


@contextmanager
def beside(target: Callable[[], None]) -> Iterator[None]:
    """Runs something on a thread while the block runs."""
    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def connect_to(neighbour: RecordingNeighbour) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(5)
    peer.connect("\0" + neighbour.name)
    return peer
