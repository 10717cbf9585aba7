"""Processes of the same user that are no members of the cluster, or not the member they claim to be.

They know where a member listens (the kernel shows that to everybody) and how its language works. They are not believed,
whatever they say, and the member goes on.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import memfabric_hybrid as mf
from memfabric_hybrid._native import MAX_PACKET_BYTES, MAX_PACKET_FDS
from memfabric_hybrid.address_space.messages import (
    Answer,
    Done,
    Offer,
    Refuse,
    Request,
    SegmentFact,
    Share,
    Withdraw,
    decode_answer,
    encode,
)
from memfabric_hybrid.bm import BigMemory, BmCopyType, BmMemType, runtime
from support import pool_worker
from support.neighbours import memory_file
from support.pool_worker import MIB
from support.workers import Cluster

HEAD = struct.pack("!Q", 1)


@pytest.fixture
def member(store_url: str) -> Iterator[BigMemory]:
    """Rank 0 of 4, with a true rank 1 beside it."""
    pool_worker.take_part(store_url, 4)
    with Cluster(1, "support.pool_worker") as cluster:
        assert cluster.call(0, "take_part", store_url, 4) == 1
        yield pool_worker.pools[0]


@contextmanager
def connected() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(20)
        stranger.connect("\0" + runtime.current_node().member.exchange_name)
        yield stranger


def say(stranger: socket.socket, request: Request, *fds: int) -> Answer:
    socket.send_fds(stranger, [HEAD + encode(request)], fds)
    content, enclosed, _, _ = socket.recv_fds(stranger, MAX_PACKET_BYTES, MAX_PACKET_FDS)
    for fd in enclosed:
        os.close(fd)
    return decode_answer(content[len(HEAD) :])


def instance_of(rank: int) -> int:
    [pool] = runtime.current_node().pools()
    return pool.group.stamps()[rank].instance


def share_of(rank: int, instance: int, generation: int = 1) -> Share:
    return Share(rank, instance, generation, os.getpid(), 2 * MIB, 0, "", 1, (SegmentFact(0, 0, 2 * MIB),))


def check_whole(pool: BigMemory) -> None:
    """Both ranks are there, and their memory is where it was."""
    byte = ctypes.create_string_buffer(b"x", 1)
    for rank in (0, 1):
        place = pool.peer_rank_ptr(rank, BmMemType.HOST)
        assert pool.copy_data(ctypes.addressof(byte), place, 1, BmCopyType.H2G) == 0, mf.get_last_err_msg()
        assert ctypes.string_at(place, 1) == b"x"


@pytest.mark.parametrize("secret", [b"", b"0" * 16])
def test_nobody_speaks_for_a_living_rank(member: BigMemory, secret: bytes) -> None:
    life = instance_of(1)
    with connected() as stranger:
        answer = say(stranger, Withdraw("bm/0", 1, life, 1 << 40, "of its own accord", secret))
        assert isinstance(answer, Refuse)
        assert "cannot prove it" in answer.sentence
    with connected() as stranger, memory_file(b"forged") as file:
        answer = say(stranger, Offer("bm/0", share_of(1, life, 1 << 40), secret), file)
        assert isinstance(answer, Refuse)
    check_whole(member)  # also after the stranger has hung up, which would be the death of whom it spoke for


def test_nobody_speaks_for_this_rank(member: BigMemory) -> None:
    """Neither its memory nor its life is anybody else's to give away."""
    ours = runtime.current_node().member
    for secret in (b"", ours.secret):
        with connected() as stranger:
            assert isinstance(say(stranger, Withdraw("bm/0", 0, ours.instance, 1 << 40, "", secret)), Refuse)
            assert isinstance(say(stranger, Offer("bm/0", share_of(0, 4711), secret)), Refuse)
    check_whole(member)


def test_rank_that_the_store_does_not_show_is_refused(member: BigMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memfabric_hybrid.address_space.exchange.answerer.SHOWN_WITHIN_S", 0.1)
    with connected() as stranger, memory_file(b"forged") as file:
        answer = say(stranger, Offer("bm/0", share_of(2, 4711), b"0" * 16), file)
        assert isinstance(answer, Refuse)
        assert "the store does not show rank 2" in answer.sentence
        assert say(stranger, Withdraw("bm/0", 2, 4711, 1)) == Done()  # of whom we never knew
    check_whole(member)


@pytest.mark.parametrize("rank", [-1, 1024, 1 << 32, 1 << 63])
def test_ranks_that_cannot_be(member: BigMemory, rank: int) -> None:
    with connected() as stranger:
        stranger.send(HEAD + encode(Withdraw("bm/0", rank, 4711, 1)))
        assert stranger.recv(100) == b"", "the connection is over"
    check_whole(member)


def test_memory_that_can_be_cut_is_not_mapped(member: BigMemory, store_url: str) -> None:
    """A true member, whose file nothing keeps from being truncated: later loads would be the others' crash."""
    life = instance_of(1)
    secret = runtime.current_node().pools()[0].group._participants.facts[1].secret
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(unsealed, 2 * MIB)
        with connected() as neighbour:
            answer = say(neighbour, Offer("bm/0", share_of(1, life, 1 << 40), secret), unsealed)
            assert isinstance(answer, Refuse)
            assert "can still be cut" in answer.sentence
    finally:
        os.close(unsealed)


def test_true_member_is_believed(member: BigMemory) -> None:
    """The control of all tests above: the same words with the right secret do what they say."""
    [pool] = runtime.current_node().pools()
    secret = pool.group._participants.facts[1].secret
    with connected() as neighbour:
        assert say(neighbour, Withdraw("bm/0", 1, *pool.group.stamps()[1], "", secret)) == Done()
    byte = ctypes.create_string_buffer(1)
    place = member.peer_rank_ptr(1, BmMemType.HOST)
    assert member.copy_data(ctypes.addressof(byte), place, 1, BmCopyType.H2G) == -2014
