"""Letting neighbours in while descriptors are short. Real limits are tried in the tests of Big Memory."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator

import pytest

from memfabric_hybrid.address_space.exchange.acceptor import Acceptor
from memfabric_hybrid.address_space.exchange.spare_descriptor import SpareDescriptor


class Listener(socket.socket):
    """Refuses as often as it is told to."""

    refusals = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@pytest.fixture
def listener() -> Listener:
    """The acceptor closes it."""
    listener = Listener(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("")  # a name of the kernel's choice
    listener.listen()
    listener.setblocking(False)
    return listener


@pytest.fixture
def epoll() -> Iterator[select.epoll]:
    with select.epoll() as epoll:
        yield epoll


@pytest.fixture
def acceptor(listener: Listener, epoll: select.epoll) -> Iterator[Acceptor]:
    spare = SpareDescriptor(epoll.fileno())
    acceptor = Acceptor(listener, epoll, spare)
    yield acceptor
    acceptor.close()
    spare.close()


@pytest.fixture
def neighbour(listener: Listener, acceptor: Acceptor) -> Iterator[socket.socket]:
    """One who has connected and waits to be let in."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as neighbour:
        neighbour.connect(listener.getsockname())
        yield neighbour


def test_lets_in_whoever_has_come(acceptor: Acceptor, epoll: select.epoll, neighbour: socket.socket) -> None:
    assert epoll.poll(0) == [(acceptor.fileno(), select.EPOLLIN)]
    accepted = acceptor.accept()
    assert accepted is not None
    with accepted:
        assert not acceptor.is_short
    assert acceptor.accept() is None, "nobody else has come"
    assert not acceptor.is_short


def test_out_of_descriptors_the_spare_one_lets_one_in(
    acceptor: Acceptor, listener: Listener, neighbour: socket.socket
) -> None:
    listener.refusals = 1
    accepted = acceptor.accept()
    assert accepted is not None
    with accepted:
        assert acceptor.is_short
        assert not acceptor.let_in_again(), "there is a new spare one"
        assert not acceptor.is_short


def test_without_a_spare_one_nobody_is_listened_to(
    acceptor: Acceptor, listener: Listener, epoll: select.epoll, neighbour: socket.socket
) -> None:
    listener.refusals = 2
    assert acceptor.accept() is None
    assert acceptor.is_short
    assert epoll.poll(0) == [], "who waits must not make us spin"
    assert not acceptor.let_in_again()
    assert epoll.poll(0) == [(acceptor.fileno(), select.EPOLLIN)]
    accepted = acceptor.accept()
    assert accepted is not None
    accepted.close()
