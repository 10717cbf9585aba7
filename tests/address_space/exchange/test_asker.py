"""Questions to neighbours and their answers: descriptors, many at once, late ones, silence and nonsense."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence

import pytest

from memfabric_hybrid._native import MAX_PACKET_BYTES, Link, Sending
from memfabric_hybrid.address_space.messages import Accept, Done, NotHere, Offer, Refuse, encode
from memfabric_hybrid.address_space.neighbour import Neighbour
from memfabric_hybrid.errors import Code, NoResources
from support.neighbours import THEIRS, MakeNeighbour, RecordingNeighbour, ScriptedNeighbour, beside, memory_file, share

pytestmark = pytest.mark.plain_user

MINE = 1001  # an instance
PROMPTLY_S = 2.0


def test_descriptors_travel_both_ways(neighbours: MakeNeighbour) -> None:
    me, other = neighbours(MINE), neighbours(THEIRS)
    assert me.ask(other.address()) == [Accept(share(THEIRS))]
    assert me.seen == [b"of 2002"]
    assert other.seen == [b"of 1001"]
    assert other.heard == [Offer("bm/0", share(MINE))]


def test_descriptors_that_arrive_are_not_inherited(neighbours: MakeNeighbour) -> None:
    """A program that starts others meanwhile must not hand them a neighbour's memory."""
    me, other = neighbours(MINE), neighbours(THEIRS)
    me.ask(other.address())
    assert (me.inheritable, other.inheritable) == ([False], [False])


def test_one_question_to_many_the_missing_included(neighbours: MakeNeighbour) -> None:
    me = neighbours(MINE)
    others = [neighbours(3000 + number) for number in range(20)]
    nobody = Neighbour(9, 9, "test/nobody is here")
    began = time.monotonic()
    answers = me.ask(nobody, *(other.address() for other in others))
    assert time.monotonic() - began < PROMPTLY_S
    assert answers == [None, *(Accept(share(other.instance)) for other in others)]


def test_many_threads_ask_each_other_at_once(neighbours: MakeNeighbour) -> None:
    everybody = [neighbours(4000 + number) for number in range(4)]
    failures: list[object] = []

    def work(neighbour: RecordingNeighbour) -> None:
        others = [other.address() for other in everybody if other is not neighbour]
        for _ in range(20):
            if None in (answers := neighbour.ask(*others)):
                failures.append(answers)

    threads = [threading.Thread(target=work, args=(neighbour,)) for neighbour in everybody for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_no_descriptors_stay_open_after_many_offers(neighbours: MakeNeighbour) -> None:
    me, other = neighbours(MINE), neighbours(THEIRS)
    me.ask(other.address())
    other.ask(me.address())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        me.ask(other.address())
        other.ask(me.address())
    deadline = time.monotonic() + PROMPTLY_S  # whoever answered closes what it was shown a moment later
    while (now := len(os.listdir("/proc/self/fd"))) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert now <= before


@pytest.mark.parametrize("direction", ["asks", "answers"])
def test_a_kernel_that_takes_no_more_descriptors_ends_no_link(
    direction: str, neighbours: MakeNeighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain user may have only so many on their way: who asks hears it, and nobody counts as dead."""
    me, other = neighbours(MINE), neighbours(THEIRS)
    assert me.ask(other.address()) == [Accept(share(THEIRS))]
    send = Link.send

    def crowded(link: Link, content: bytes, fds: Sequence[int], timeout_s: float = 0.0) -> Sending:
        if fds and (threading.current_thread() is threading.main_thread()) == (direction == "asks"):
            return Sending.CROWDED
        return send(link, content, fds, timeout_s)

    monkeypatch.setattr(Link, "send", crowded)
    if direction == "asks":
        with pytest.raises(NoResources, match="ulimit"):
            me.ask(other.address())
    else:
        (answer,) = me.ask(other.address())
        assert isinstance(answer, Refuse)
        assert answer.code == Code.NO_RESOURCES
        assert "ulimit" in answer.sentence
    monkeypatch.undo()
    assert me.ask(other.address()) == [Accept(share(THEIRS))]
    assert (me.lost, other.lost) == ([], [])


def test_late_answer_is_not_taken_for_the_next_one(neighbours: MakeNeighbour, scripted: ScriptedNeighbour) -> None:
    me = neighbours(MINE)
    given_up = threading.Event()

    def slow_neighbour() -> None:
        peer = scripted.accept()
        first = peer.recv(MAX_PACKET_BYTES)
        assert given_up.wait(10)
        late = first[:8] + encode(NotHere())
        with memory_file(b"late") as fd:
            socket.send_fds(peer, [late], [fd])
        second = peer.recv(MAX_PACKET_BYTES)
        peer.send(second[:8] + encode(Done()))

    with beside(slow_neighbour):
        assert me.ask(scripted.address, timeout_s=0.2) == [None]
        given_up.set()
        assert me.ask(scripted.address) == [Done()]
    assert me.seen == [], "the late descriptor was closed, not handed out"


def test_neighbour_that_never_answers_holds_nobody_up(neighbours: MakeNeighbour, scripted: ScriptedNeighbour) -> None:
    me, good = neighbours(MINE), neighbours(THEIRS + 1)
    began = time.monotonic()
    answers = me.ask(
        scripted.address, good.address(), timeout_s=30, expected=lambda who: time.monotonic() - began < 0.3
    )
    assert answers == [None, Accept(share(THEIRS + 1))]
    assert 0.25 < time.monotonic() - began < PROMPTLY_S
    began = time.monotonic()
    assert me.ask(scripted.address, timeout_s=0.3) == [None]
    assert 0.25 < time.monotonic() - began < PROMPTLY_S


@pytest.mark.parametrize(
    "answer",
    [b"", b"1234567", b"12345678", b"12345678\xc1", b"12345678\x91\xa1\x80", b"\0" * 200],
    ids=["nothing", "too short", "a number", "no msgpack", "no text", "another number"],
)
def test_neighbour_that_answers_nonsense_is_dropped(
    neighbours: MakeNeighbour, scripted: ScriptedNeighbour, answer: bytes
) -> None:
    me = neighbours(MINE)

    def nonsense() -> None:
        peer = scripted.accept()
        head = peer.recv(MAX_PACKET_BYTES)[:8]
        with memory_file(b"x") as fd:
            socket.send_fds(peer, [answer.replace(b"12345678", head)], [fd])
        peer.close()

    with beside(nonsense):
        assert me.ask(scripted.address, timeout_s=2) == [None]
    assert me.told.wait(PROMPTLY_S)
    assert me.lost == [THEIRS]
