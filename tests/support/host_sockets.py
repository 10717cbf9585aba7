"""Plain sockets between the hosts of a test: who reaches whom, and how well."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

from support.hosts import Host
from support.links import DEVICE

ENOUGH_S = 20.0  # for what must work
FRAMES_OF_TESTS = 0x88B5  # IEEE: for experiments
NEVER_S = 0.3  # how long we wait for what must not happen: long enough to see it if it did


@contextlib.contextmanager
def connected(
    one: Host, other: Host, *, version: int = 4, timeout_s: float = ENOUGH_S
) -> Iterator[list[socket.socket]]:
    """A TCP connection: the end on `one`, which asked for it, and the end on `other`."""
    family, address = (socket.AF_INET, other.address) if version == 4 else (socket.AF_INET6, other.address6)
    with contextlib.ExitStack() as ends:
        with other.entered():
            listener = ends.enter_context(socket.create_server((address, 0), family=family))
        with one.entered():
            asking = ends.enter_context(socket.socket(family))
        asking.settimeout(timeout_s)
        listener.settimeout(timeout_s)
        asking.connect(listener.getsockname()[:2])
        answering = ends.enter_context(listener.accept()[0])
        for end in (asking, answering):
            end.settimeout(ENOUGH_S)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield [asking, answering]


def reaches(one: Host, other: Host, *, version: int = 4) -> bool:
    """Whether a new connection to `other` can be made, however long it takes."""
    return _connects(one, other, version, ENOUGH_S)


def is_cut_off(one: Host, other: Host, *, version: int = 4) -> bool:
    """Whether no connection to `other` is made while we look, and no answer comes either."""
    return not _connects(one, other, version, NEVER_S)


def _connects(one: Host, other: Host, version: int, timeout_s: float) -> bool:
    try:
        with connected(one, other, version=version, timeout_s=timeout_s):
            return True
    except TimeoutError:
        return False


def round_trip_s(ends: list[socket.socket], rounds: int = 5) -> float:
    """The shortest of some, so that a busy machine does not count."""
    shortest = float("inf")
    for _ in range(rounds):
        began = time.monotonic()
        for sender, receiver in ((ends[0], ends[1]), (ends[1], ends[0])):
            sender.send(b"x")
            receiver.recv(1)
        shortest = min(shortest, time.monotonic() - began)
    return shortest


@contextlib.contextmanager
def datagrams(one: Host, other: Host) -> Iterator[list[socket.socket]]:
    """A UDP socket on each host; what the first one sends goes to the second."""
    with contextlib.ExitStack() as ends:
        sockets = []
        for host in (one, other):
            with host.entered():
                sockets.append(ends.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            sockets[-1].bind((host.address, 0))
            sockets[-1].settimeout(ENOUGH_S)
        sockets[0].connect(sockets[1].getsockname())
        yield sockets


@contextlib.contextmanager
def frames(host: Host) -> Iterator[socket.socket]:
    """A socket for whole Ethernet frames of a kind that nobody else uses: what is lost is not sent again."""
    with host.entered():
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(FRAMES_OF_TESTS))
    with end:
        end.bind((DEVICE, FRAMES_OF_TESTS))
        end.settimeout(ENOUGH_S)
        yield end


def to_all(content: bytes) -> bytes:
    """A frame that every host of the network gets."""
    return b"\xff" * 6 + b"\x02" + bytes(5) + FRAMES_OF_TESTS.to_bytes(2, "big") + content
