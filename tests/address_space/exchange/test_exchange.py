"""The exchange as a whole: its ticks, and what is left of it in a forked child."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
import warnings
from contextlib import ExitStack

import pytest

from memfabric_hybrid._native import MAX_PACKET_BYTES
from memfabric_hybrid.address_space.messages import Accept, Done, Withdraw, encode
from support.descriptor_limits import no_more_descriptors
from support.neighbours import THEIRS, MakeNeighbour, share
from support.threads import wait_until

pytestmark = pytest.mark.plain_user

MINE = 1001  # an instance


def test_ticks_go_on_for_as_long_as_they_are_wanted(neighbours: MakeNeighbour) -> None:
    neighbour = neighbours(MINE)
    neighbour.wanted_ticks = 3
    began = time.monotonic()
    neighbour.exchange.request_tick()
    wait_until(lambda: neighbour.ticks == 3)
    assert time.monotonic() - began >= 0.3
    wait_until(lambda: not neighbour.exchange._ticking)  # it sleeps until it is woken
    assert neighbour.ticks == 3


def test_forked_child_lets_go_of_everything(neighbours: MakeNeighbour) -> None:
    me, other = neighbours(MINE), neighbours(THEIRS)
    me.ask(other.address())
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: that there are threads is the point here
        child = os.fork()
    if child == 0:
        me.exchange.abandon_after_fork()
        other.exchange.abandon_after_fork()
        sockets = sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in _open_descriptors())
        os.write(writable, str(sockets).encode())
        os._exit(0)
    os.close(writable)
    with open(readable, "rb", buffering=0) as pipe:
        assert select.select([pipe], [], [], 10)[0]
        in_child = int(pipe.read(10))
    os.waitpid(child, 0)
    ours = sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in _open_descriptors())
    assert ours - in_child == 4, "two rank sockets and both ends of the link"
    assert me.ask(other.address()) == [Accept(share(THEIRS))], "the parent is unharmed"


def _open_descriptors() -> list[int]:
    return [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


def test_whoever_comes_while_there_are_no_descriptors_is_heard_later(neighbours: MakeNeighbour) -> None:
    """The first peer gets the spare one and keeps it. Those behind it are let in as soon as there are some again."""
    me = neighbours(MINE)
    with ExitStack() as stack:
        peers = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(3)]
        question, answer = (struct.pack("!Q", 5) + encode(said) for said in (Withdraw("bm/0", 1, THEIRS, 1), Done()))
        with no_more_descriptors(os.getpid()):
            for peer in peers:
                peer.settimeout(20)
                peer.connect("\0" + me.name)
                peer.send(question)
            assert peers[0].recv(MAX_PACKET_BYTES) == answer
            assert select.select(peers[1:], [], [], 0.3)[0] == []
        for peer in peers[1:]:
            assert peer.recv(MAX_PACKET_BYTES) == answer
