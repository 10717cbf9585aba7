"""Links tell of deaths: once, at once, whoever reads the end first, and never of the living."""

from __future__ import annotations

import logging
import time

import msgspec
import pytest

from memfabric_hybrid._native import MAX_PACKET_BYTES
from memfabric_hybrid.address_space.messages import Done, encode
from support.neighbours import THEIRS, MakeNeighbour, RecordingNeighbour, ScriptedNeighbour, beside

pytestmark = pytest.mark.plain_user

MINE = 1001  # an instance
PROMPTLY_S = 2.0


def test_end_is_told_to_those_who_asked_and_those_who_were_asked(neighbours: MakeNeighbour) -> None:
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
        peer.recv(MAX_PACKET_BYTES)
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
        peer.send(peer.recv(MAX_PACKET_BYTES)[:8] + encode(Done()))
        peer.close()

    for number in (1, 2, 3):
        me.told.clear()
        with beside(answer_and_die):
            assert me.ask(scripted.address) == [Done()]
        assert me.told.wait(PROMPTLY_S)
        assert me.lost == [THEIRS] * number


def test_log_says_once_why_a_neighbour_cannot_be_reached(
    neighbours: MakeNeighbour, caplog: pytest.LogCaptureFixture
) -> None:
    """The store may show a dead one for long, and all that time it is asked."""
    caplog.set_level(logging.INFO, "memfabric_hybrid")
    me, dead = neighbours(MINE), RecordingNeighbour(THEIRS)
    address = dead.address()
    dead.close()
    assert [me.ask(address) for _ in range(3)] == [[None]] * 3
    assert me.ask(msgspec.structs.replace(address, instance=THEIRS + 1)) == [None]
    said = [line.getMessage() for line in caplog.records if "cannot be reached on this host" in line.getMessage()]
    assert len(said) == 2, "one line for each life"


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
