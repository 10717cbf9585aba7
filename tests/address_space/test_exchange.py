"""The exchange between the processes of one host: questions and answers, descriptors, deaths, ends."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from memfabric_hybrid.address_space import packets
from memfabric_hybrid.address_space.exchange import Neighbour
from memfabric_hybrid.address_space.messages import (
    MAX_PACKET,
    Accept,
    Done,
    NotHere,
    Offer,
    Refuse,
    Withdraw,
    decode_request,
    encode,
)
from memfabric_hybrid.errors import Code, NoResources
from support.descriptor_limits import no_more_descriptors
from support.neighbours import THEIRS, MakeNeighbour, RecordingNeighbour, ScriptedNeighbour, beside, memory_file, share
from support.threads import wait_until

pytestmark = pytest.mark.plain_user

MINE = 1001  # an instance
PROMPTLY_S = 2.0


# ---- asking and answering -------------------------------------------------------------------------------------------


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
    send = packets.send

    def crowded(sock: socket.socket, packet: bytes, fds: Sequence[int], flags: int = 0) -> None:
        if fds and (threading.current_thread() is threading.main_thread()) == (direction == "asks"):
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        send(sock, packet, fds, flags)

    monkeypatch.setattr(packets, "send", crowded)
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


def test_nobody_is_accepted_over_and_over_without_descriptors(
    neighbours: MakeNeighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first peer gets the spare one and keeps it. Those behind it are not looked at all the time, and are let in as
    soon as there are some again."""
    me, attempts = neighbours(MINE), []
    accept, me.wanted_ticks = me.exchange._accept, 1 << 30
    monkeypatch.setattr(me.exchange, "_accept", lambda: (attempts.append(me.ticks), accept()))
    with ExitStack() as stack:
        peers = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(3)]
        with no_more_descriptors(os.getpid()):
            for peer in peers:
                peer.settimeout(20)
                peer.connect("\0" + me.name)
            wait_until(lambda: me.exchange._paused or len(attempts) > 10)
            tried, since = len(attempts), me.ticks
            wait_until(lambda: me.ticks > since + 5)
            assert len(attempts) == tried, "it tries all the time"
        question = Withdraw("bm/0", 1, THEIRS, 1)
        for peer in peers:
            peer.send(struct.pack("!Q", 5) + encode(question))
        for peer in peers:
            assert peer.recv(MAX_PACKET) == struct.pack("!Q", 5) + encode(Done())


def test_late_answer_is_not_taken_for_the_next_one(neighbours: MakeNeighbour, scripted: ScriptedNeighbour) -> None:
    me = neighbours(MINE)
    given_up = threading.Event()

    def slow_neighbour() -> None:
        peer = scripted.accept()
        first = peer.recv(MAX_PACKET)
        assert given_up.wait(10)
        late = first[:8] + encode(NotHere())
        with memory_file(b"late") as fd:
            socket.send_fds(peer, [late], [fd])
        second = peer.recv(MAX_PACKET)
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
        head = peer.recv(MAX_PACKET)[:8]
        with memory_file(b"x") as fd:
            socket.send_fds(peer, [answer.replace(b"12345678", head)], [fd])
        peer.close()

    with beside(nonsense):
        assert me.ask(scripted.address, timeout_s=2) == [None]
    assert me.told.wait(PROMPTLY_S)
    assert me.lost == [THEIRS]


# ---- deaths ---------------------------------------------------------------------------------------------------------


def test_end_is_told_to_those_who_asked_and_those_who_were_asked(
    neighbours: MakeNeighbour,
) -> None:
    me, asked, asker = neighbours(MINE), RecordingNeighbour(THEIRS), RecordingNeighbour(THEIRS + 1)
    me.ask(asked.address())
    asker.ask(me.address())
    began = time.monotonic()
    for neighbour in (asked, asker):
        me.told.clear()
        neighbour.close()
        assert me.told.wait(PROMPTLY_S)
    assert time.monotonic() - began < PROMPTLY_S
    assert me.lost == [THEIRS, THEIRS + 1]


def test_death_under_an_open_question_is_told(neighbours: MakeNeighbour, scripted: ScriptedNeighbour) -> None:
    """The asker reads the end of the connection first; still everybody has to know."""
    me = neighbours(MINE)

    def die_instead_of_answering() -> None:
        peer = scripted.accept()
        peer.recv(MAX_PACKET)
        peer.close()

    with beside(die_instead_of_answering):
        assert me.ask(scripted.address, timeout_s=5) == [None]
    assert me.told.wait(PROMPTLY_S)
    assert me.lost == [THEIRS]
    assert not me.exchange.is_linked(THEIRS)


def test_death_before_the_next_question_is_told_once(neighbours: MakeNeighbour, scripted: ScriptedNeighbour) -> None:
    me = neighbours(MINE)

    def answer_and_die() -> None:
        peer = scripted.accept()
        peer.send(peer.recv(MAX_PACKET)[:8] + encode(Done()))
        peer.close()

    for number in (1, 2, 3):
        me.told.clear()
        with beside(answer_and_die):
            assert me.ask(scripted.address) == [Done()]
        assert me.told.wait(PROMPTLY_S)
        assert me.lost == [THEIRS] * number


def test_link_is_known_while_it_lasts(neighbours: MakeNeighbour) -> None:
    me, other = neighbours(MINE), RecordingNeighbour(THEIRS)
    assert not me.exchange.is_linked(THEIRS)
    me.ask(other.address())
    assert me.exchange.is_linked(THEIRS)
    other.close()
    assert me.told.wait(PROMPTLY_S)
    assert not me.exchange.is_linked(THEIRS)


def test_deaths_and_questions_at_the_same_time(neighbours: MakeNeighbour) -> None:
    """Numbers of descriptors are used again at once; nobody may be taken for a dead one."""
    me, living = neighbours(MINE), [neighbours(5000 + number) for number in range(3)]
    for round in range(30):
        doomed = [RecordingNeighbour(6000 + 10 * round + number) for number in range(3)]
        me.ask(*(neighbour.address() for neighbour in doomed))
        with beside(lambda doomed=doomed: [neighbour.close() for neighbour in doomed]):  # type: ignore[misc]
            answers = me.ask(*(neighbour.address() for neighbour in (*doomed, *living)), timeout_s=5)
        assert None not in answers[3:]
    assert not set(me.lost) & {neighbour.instance for neighbour in living}


# ---- time and ending ------------------------------------------------------------------------------------------------


def test_ticks_go_on_for_as_long_as_they_are_wanted(neighbours: MakeNeighbour) -> None:
    neighbour = neighbours(MINE)
    neighbour.wanted_ticks = 3
    began = time.monotonic()
    neighbour.exchange.request_tick()
    while neighbour.ticks < 3 and time.monotonic() - began < 5:
        time.sleep(0.01)
    assert neighbour.ticks == 3
    assert time.monotonic() - began >= 0.3
    time.sleep(0.5)
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


def test_messages_survive_the_wire() -> None:
    for request in (Offer("bm/0", share(5)), Withdraw("bm/1", 1, 2, 3)):
        assert decode_request(encode(request)) == request
