"""The exchange's socket: processes of other users are told why they are refused; nonsense harms nobody."""

from __future__ import annotations

import secrets
import socket
import struct
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memfabric_hybrid._native import MAX_PACKET_BYTES, MAX_PACKET_FDS
from memfabric_hybrid.address_space.exchange.answerer import MOST_OTHER_USERS
from memfabric_hybrid.address_space.messages import Accept, Done, Offer, Refuse, Withdraw, encode
from memfabric_hybrid.address_space.neighbour import Neighbour
from support.neighbours import THEIRS, MakeNeighbour, RecordingNeighbour, connect_to, memory_file, share

pytestmark = pytest.mark.plain_user

MINE = 1001  # an instance


NO_TEXT = b"\0" * 8 + b"\x91\xa1\x80"  # a tag that is not UTF-8


@example(packet=NO_TEXT)
@given(packet=st.one_of(st.binary(max_size=60), st.binary(min_size=9, max_size=300).map(lambda b: b"\0" * 8 + b)))
def test_nonsense_on_the_socket_harms_nobody(packet: bytes) -> None:
    neighbour = RecordingNeighbour(MINE)
    try:
        with connect_to(neighbour) as peer, memory_file(b"x") as fd:
            socket.send_fds(peer, [packet or b"\0"], [fd] * 3)
            assert peer.recv(100) == b"", "the connection is over"
        with connect_to(neighbour) as peer:
            request = Withdraw("bm/0", 1, THEIRS, 1)
            peer.send(struct.pack("!Q", 5) + encode(request))
            assert peer.recv(MAX_PACKET_BYTES) == struct.pack("!Q", 5) + encode(Done())
        assert neighbour.heard == [request]
    finally:
        neighbour.close()


def test_packet_that_is_too_large_or_cut_off(neighbours: MakeNeighbour) -> None:
    neighbour = neighbours(MINE)
    good = encode(Offer("n" * (MAX_PACKET_BYTES - 100), share(THEIRS)))
    with connect_to(neighbour) as peer:
        peer.send(b"\0" * 8 + good[:-1])
        assert peer.recv(100) == b""
    with connect_to(neighbour) as peer:
        peer.send(b"\0" * 8 + encode(Offer("n" * MAX_PACKET_BYTES, share(THEIRS))))
        assert peer.recv(100) == b""
    assert neighbour.heard == []


def test_most_descriptors_that_the_kernel_takes(neighbours: MakeNeighbour) -> None:
    neighbour = neighbours(MINE)
    with connect_to(neighbour) as peer, memory_file(b"x") as fd:
        socket.send_fds(peer, [b"\0" * 8 + encode(Offer("bm/0", share(THEIRS)))], [fd] * MAX_PACKET_FDS)
        assert peer.recv(MAX_PACKET_BYTES)
    assert neighbour.seen == [b"x"] * MAX_PACKET_FDS


def test_peer_that_does_not_read_its_answers_holds_nobody_up(neighbours: MakeNeighbour) -> None:
    """It is dropped when its socket is full: the exchange's thread waits for nobody."""
    neighbour, other = neighbours(MINE), neighbours(THEIRS)
    question = b"\0" * 8 + encode(Withdraw("bm/0", 1, 3003, 1))
    with connect_to(neighbour) as peer:
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:
                peer.send(question)
        assert other.ask(neighbour.address()) == [Accept(share(MINE))]


def test_peer_that_says_nothing_holds_nobody_up(neighbours: MakeNeighbour) -> None:
    neighbour, other = neighbours(MINE), neighbours(THEIRS)
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect_to(neighbour))
        assert other.ask(neighbour.address()) == [Accept(share(MINE))]
    assert neighbour.lost == [], "who has said nothing cannot be lost"


STRANGER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.settimeout(5)
peer.connect("\\0" + sys.argv[1])
try:
    peer.send(bytes.fromhex(sys.argv[2]))
    print(peer.recv(1000), peer.recv(1000) == b"")
except ConnectionError as error:
    print(b"")
"""
FOREIGN_SOCKET = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0" + sys.argv[1])
listener.listen()
print("open", flush=True)
peer = listener.accept()[0]
peer.settimeout(5)
print(peer.recv(100), flush=True)
"""
root_only = pytest.mark.needs_root("only root can start processes of other users")


@root_only
def test_process_of_another_user_is_told_why_and_nothing_else(neighbours: MakeNeighbour) -> None:
    neighbour = neighbours(MINE)
    packet = (b"\0" * 8 + encode(Offer("bm/0", share(THEIRS)))).hex()
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, neighbour.name, packet], capture_output=True, text=True, timeout=30
    )
    assert "lets only that user and root in, not user 65534; run both as the same user" in done.stdout, done.stderr
    assert done.stdout.endswith(" True\n"), "and that is the end of the connection"
    assert neighbour.heard == neighbour.seen == []


SILENT_STRANGERS = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
peers = []
for _ in range(int(sys.argv[2])):
    peers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    peers[-1].connect("\\0" + sys.argv[1])
peers[0].settimeout(5)
print(peers[0].recv(100))
"""


@root_only
def test_other_users_that_say_nothing_keep_no_descriptors(neighbours: MakeNeighbour) -> None:
    neighbour = neighbours(MINE)
    done = subprocess.run(
        [sys.executable, "-c", SILENT_STRANGERS, neighbour.name, str(MOST_OTHER_USERS + 1)],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("b''\n", ""), "the first one makes way for the last"


@root_only
def test_process_of_another_user_is_told_nothing(neighbours: MakeNeighbour) -> None:
    me, name = neighbours(MINE), f"test/{secrets.token_hex(8)}"
    command = [sys.executable, "-c", FOREIGN_SOCKET, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "open\n"
        (answer,) = me.ask(Neighbour(1, THEIRS, name))
        assert isinstance(answer, Refuse)
        assert "rank 1 of this host cannot be asked: its process" in answer.sentence
        assert "belongs to user 65534, this one to user 0" in answer.sentence
        assert stranger.stdout.readline() == "b''\n"
