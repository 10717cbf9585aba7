"""The descriptor in reserve: it gives way once, and comes back with the first number that is free."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from memfabric_hybrid.address_space.exchange.spare_descriptor import SpareDescriptor


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def spare(stack: ExitStack) -> SpareDescriptor:
    some = os.eventfd(0)
    stack.callback(os.close, some)
    spare = SpareDescriptor(some)
    stack.callback(spare.close)
    return spare


def made_when_allowed(stack: ExitStack, *refusals: int) -> Callable[[], socket.socket]:
    """Fails with these errors, one after the other, then makes a socket."""
    left = list(refusals)

    def make() -> socket.socket:
        if left:
            number = left.pop(0)
            raise OSError(number, os.strerror(number))
        return stack.enter_context(socket.socket(socket.AF_UNIX))

    return make


def test_stays_while_there_are_others(spare: SpareDescriptor, stack: ExitStack) -> None:
    spare.give_way_to(made_when_allowed(stack))
    assert not spare.is_missing


def test_gives_way_once(spare: SpareDescriptor, stack: ExitStack) -> None:
    assert spare.give_way_to(made_when_allowed(stack, errno.EMFILE)).fileno() >= 0
    assert spare.is_missing
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        spare.give_way_to(made_when_allowed(stack, errno.EMFILE))
    spare.restore()
    assert not spare.is_missing


def test_gives_way_to_no_other_failure(spare: SpareDescriptor, stack: ExitStack) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ECONNABORTED)):
        spare.give_way_to(made_when_allowed(stack, errno.ECONNABORTED))
    assert not spare.is_missing


def test_takes_the_number_of_a_connection_that_ends(spare: SpareDescriptor) -> None:
    spare.close()
    ended, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = ended.fileno()
    spare.close_connection(ended)
    assert not spare.is_missing
    assert os.readlink(f"/proc/self/fd/{number}") == "anon_inode:[eventfd]"
    assert not os.get_inheritable(number)
    assert other.recv(1) == b"", "the other side has seen the end"
    other.close()


def test_leaves_the_number_alone_when_it_has_one(spare: SpareDescriptor) -> None:
    ended, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = ended.fileno()
    spare.close_connection(ended)
    assert not os.path.lexists(f"/proc/self/fd/{number}")
    other.close()
