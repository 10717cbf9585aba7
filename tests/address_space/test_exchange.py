"""The exchange between the processes of one host: questions and answers, descriptors, deaths, ends."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import select
import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

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
from support.neighbours import THEIRS, House, Puppet, beside, memory_file, share
from support.threads import wait_until

pytestmark = pytest.mark.plain_user

MINE = 1001  # an instance
PROMPTLY_S = 2.0


# ---- asking and answering -------------------------------------------------------------------------------------------


def test_descriptors_travel_both_ways(houses: Callable[[int], House]) -> None:
    me, other = houses(MINE), houses(THEIRS)
    assert me.ask(other.neighbour()) == [Accept(share(THEIRS))]
    assert me.seen == [b"of 2002"]
    assert other.seen == [b"of 1001"]
    assert other.heard == [Offer("bm/0", share(MINE))]


def test_descriptors_that_arrive_are_not_inherited(houses: Callable[[int], House]) -> None:
    """A program that starts others meanwhile must not hand them a neighbour's memory."""
    me, other = houses(MINE), houses(THEIRS)
    me.ask(other.neighbour())
    assert (me.inheritable, other.inheritable) == ([False], [False])


def test_one_question_to_many_the_missing_included(houses: Callable[[int], House]) -> None:
    me = houses(MINE)
    others = [houses(3000 + number) for number in range(20)]
    nobody = Neighbour(9, 9, "test/nobody is here")
    began = time.monotonic()
    answers = me.ask(nobody, *(other.neighbour() for other in others))
    assert time.monotonic() - began < PROMPTLY_S
    assert answers == [None, *(Accept(share(other.instance)) for other in others)]


def test_many_threads_ask_each_other_at_once(houses: Callable[[int], House]) -> None:
    everybody = [houses(4000 + number) for number in range(4)]
    failures: list[object] = []

    def work(house: House) -> None:
        others = [other.neighbour() for other in everybody if other is not house]
        for _ in range(20):
            if None in (answers := house.ask(*others)):
                failures.append(answers)

    threads = [threading.Thread(target=work, args=(house,)) for house in everybody for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_no_descriptors_stay_open_after_many_offers(houses: Callable[[int], House]) -> None:
    me, other = houses(MINE), houses(THEIRS)
    me.ask(other.neighbour())
    other.ask(me.neighbour())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        me.ask(other.neighbour())
        other.ask(me.neighbour())
    deadline = time.monotonic() + PROMPTLY_S  # whoever answered closes what it was shown a moment later
    while (now := len(os.listdir("/proc/self/fd"))) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert now <= before


@pytest.mark.parametrize("direction", ["asks", "answers"])
def test_a_kernel_that_takes_no_more_descriptors_ends_no_link(
    direction: str, houses: Callable[[int], House], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain user may have only so many on their way: who asks hears it, and nobody counts as dead."""
    me, other = houses(MINE), houses(THEIRS)
    assert me.ask(other.neighbour()) == [Accept(share(THEIRS))]
    send = packets.send

    def crowded(sock: socket.socket, packet: bytes, fds: Sequence[int], flags: int = 0) -> None:
        if fds and (threading.current_thread() is threading.main_thread()) == (direction == "asks"):
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        send(sock, packet, fds, flags)

    monkeypatch.setattr(packets, "send", crowded)
    if direction == "asks":
        with pytest.raises(NoResources, match="ulimit"):
            me.ask(other.neighbour())
    else:
        (answer,) = me.ask(other.neighbour())
        assert isinstance(answer, Refuse)
        assert answer.code == Code.NO_RESOURCES
        assert "ulimit" in answer.sentence
    monkeypatch.undo()
    assert me.ask(other.neighbour()) == [Accept(share(THEIRS))]
    assert (me.lost, other.lost) == ([], [])


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    listed = os.listdir("/proc/self/fd")
    taken = {int(number) for number in listed if os.path.lexists(f"/proc/self/fd/{number}")}  # not the listing's own
    lowest_free = next(number for number in itertools.count() if number not in taken)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_door_stays_shut_without_descriptors(houses: Callable[[int], House], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first peer gets the spare one and keeps it. Those behind it are not looked at over and over, and are let
    in as soon as there are some again."""
    house, knocks = houses(MINE), []
    accept, house.wanted_ticks = house.exchange._accept, 1 << 30
    monkeypatch.setattr(house.exchange, "_accept", lambda: (knocks.append(house.ticks), accept()))
    with ExitStack() as stack:
        visitors = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(3)]
        with no_more_descriptors():
            for peer in visitors:
                peer.settimeout(20)
                peer.connect("\0" + house.name)
            wait_until(lambda: house.exchange._paused or len(knocks) > 10)
            tried, since = len(knocks), house.ticks
            wait_until(lambda: house.ticks > since + 5)
            assert len(knocks) == tried, "it looks at the door all the time"
        question = Withdraw("bm/0", 1, THEIRS, 1)
        for peer in visitors:
            peer.send(struct.pack("!Q", 5) + encode(question))
        for peer in visitors:
            assert peer.recv(MAX_PACKET) == struct.pack("!Q", 5) + encode(Done())


def test_late_answer_is_not_taken_for_the_next_one(houses: Callable[[int], House], puppet: Puppet) -> None:
    me = houses(MINE)
    given_up = threading.Event()

    def slow_neighbour() -> None:
        peer = puppet.accept()
        first = peer.recv(MAX_PACKET)
        assert given_up.wait(10)
        late = first[:8] + encode(NotHere())
        with memory_file(b"late") as fd:
            socket.send_fds(peer, [late], [fd])
        second = peer.recv(MAX_PACKET)
        peer.send(second[:8] + encode(Done()))

    with beside(slow_neighbour):
        assert me.ask(puppet.neighbour, timeout_s=0.2) == [None]
        given_up.set()
        assert me.ask(puppet.neighbour) == [Done()]
    assert me.seen == [], "the late descriptor was closed, not handed out"


def test_neighbour_that_never_answers_holds_nobody_up(houses: Callable[[int], House], puppet: Puppet) -> None:
    me, good = houses(MINE), houses(THEIRS + 1)
    began = time.monotonic()
    answers = me.ask(
        puppet.neighbour, good.neighbour(), timeout_s=30, expected=lambda who: time.monotonic() - began < 0.3
    )
    assert answers == [None, Accept(share(THEIRS + 1))]
    assert 0.25 < time.monotonic() - began < PROMPTLY_S
    began = time.monotonic()
    assert me.ask(puppet.neighbour, timeout_s=0.3) == [None]
    assert 0.25 < time.monotonic() - began < PROMPTLY_S


@pytest.mark.parametrize(
    "answer",
    [b"", b"1234567", b"12345678", b"12345678\xc1", b"12345678\x91\xa1\x80", b"\0" * 200],
    ids=["nothing", "too short", "a number", "no msgpack", "no text", "another number"],
)
def test_neighbour_that_answers_nonsense_is_dropped(
    houses: Callable[[int], House], puppet: Puppet, answer: bytes
) -> None:
    me = houses(MINE)

    def nonsense() -> None:
        peer = puppet.accept()
        head = peer.recv(MAX_PACKET)[:8]
        with memory_file(b"x") as fd:
            socket.send_fds(peer, [answer.replace(b"12345678", head)], [fd])
        peer.close()

    with beside(nonsense):
        assert me.ask(puppet.neighbour, timeout_s=2) == [None]
    assert me.told.wait(PROMPTLY_S)
    assert me.lost == [THEIRS]


# ---- deaths ---------------------------------------------------------------------------------------------------------


def test_end_is_told_to_those_who_asked_and_those_who_were_asked(houses: Callable[[int], House]) -> None:
    me, asked, asker = houses(MINE), House(THEIRS), House(THEIRS + 1)
    me.ask(asked.neighbour())
    asker.ask(me.neighbour())
    began = time.monotonic()
    for house in (asked, asker):
        me.told.clear()
        house.close()
        assert me.told.wait(PROMPTLY_S)
    assert time.monotonic() - began < PROMPTLY_S
    assert me.lost == [THEIRS, THEIRS + 1]


def test_death_under_an_open_question_is_told(houses: Callable[[int], House], puppet: Puppet) -> None:
    """The asker reads the end of the connection first; still everybody has to know."""
    me = houses(MINE)

    def die_instead_of_answering() -> None:
        peer = puppet.accept()
        peer.recv(MAX_PACKET)
        peer.close()

    with beside(die_instead_of_answering):
        assert me.ask(puppet.neighbour, timeout_s=5) == [None]
    assert me.told.wait(PROMPTLY_S)
    assert me.lost == [THEIRS]
    assert not me.exchange.is_linked(THEIRS)


def test_death_before_the_next_question_is_told_once(houses: Callable[[int], House], puppet: Puppet) -> None:
    me = houses(MINE)

    def answer_and_die() -> None:
        peer = puppet.accept()
        peer.send(peer.recv(MAX_PACKET)[:8] + encode(Done()))
        peer.close()

    for number in (1, 2, 3):
        me.told.clear()
        with beside(answer_and_die):
            assert me.ask(puppet.neighbour) == [Done()]
        assert me.told.wait(PROMPTLY_S)
        assert me.lost == [THEIRS] * number


def test_link_is_known_while_it_lasts(houses: Callable[[int], House]) -> None:
    me, other = houses(MINE), House(THEIRS)
    assert not me.exchange.is_linked(THEIRS)
    me.ask(other.neighbour())
    assert me.exchange.is_linked(THEIRS)
    other.close()
    assert me.told.wait(PROMPTLY_S)
    assert not me.exchange.is_linked(THEIRS)


def test_deaths_and_questions_at_the_same_time(houses: Callable[[int], House]) -> None:
    """Numbers of descriptors are used again at once; nobody may be taken for a dead one."""
    me, living = houses(MINE), [houses(5000 + number) for number in range(3)]
    for round in range(30):
        doomed = [House(6000 + 10 * round + number) for number in range(3)]
        me.ask(*(house.neighbour() for house in doomed))
        with beside(lambda doomed=doomed: [house.close() for house in doomed]):  # type: ignore[misc]
            answers = me.ask(*(house.neighbour() for house in (*doomed, *living)), timeout_s=5)
        assert None not in answers[3:]
    assert not set(me.lost) & {house.instance for house in living}


# ---- time and ending ------------------------------------------------------------------------------------------------


def test_ticks_go_on_for_as_long_as_they_are_wanted(houses: Callable[[int], House]) -> None:
    house = houses(MINE)
    house.wanted_ticks = 3
    began = time.monotonic()
    house.exchange.request_tick()
    while house.ticks < 3 and time.monotonic() - began < 5:
        time.sleep(0.01)
    assert house.ticks == 3
    assert time.monotonic() - began >= 0.3
    time.sleep(0.5)
    assert house.ticks == 3


def test_forked_child_lets_go_of_everything(houses: Callable[[int], House]) -> None:
    me, other = houses(MINE), houses(THEIRS)
    me.ask(other.neighbour())
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
    assert me.ask(other.neighbour()) == [Accept(share(THEIRS))], "the parent is unharmed"


def _open_descriptors() -> list[int]:
    return [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


def test_messages_survive_the_wire() -> None:
    for request in (Offer("bm/0", share(5)), Withdraw("bm/1", 1, 2, 3)):
        assert decode_request(encode(request)) == request
