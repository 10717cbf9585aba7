"""What all sessions together hold has limits, and strangers have a part of their own: members always find room.

In each test strangers come, session after session, until there is nothing left for them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memfabric_hybrid.errors import Code
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.limits import SMALL_GATHER_BYTES, SMALL_WATCHES
from memfabric_hybrid.store.state import ranges, rendezvous, watches
from memfabric_hybrid.store.state.placement import ALIGNMENT_BYTES, REGION_END, REGION_START
from store.bench import Bench, answer

LIMIT_BYTES = 100_000


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    for module, name in (
        (watches, "MAX_OTHERS_WATCHES_BYTES"),
        (ranges, "MAX_OTHERS_RANGES_BYTES"),
        (rendezvous, "MAX_OTHERS_GATHERS_BYTES"),
    ):
        monkeypatch.setattr(module, name, LIMIT_BYTES)
    return Bench()


def member(bench: Bench, session: int) -> int:
    connection = bench.member(session)
    rank = bench.say(connection, m.ClaimRank(1, "bm/ranks", 4, b"", None, ()))
    assert isinstance(answer(rank), m.Number)
    return connection


def fill(bench: Bench, make: Callable[[int, int], m.Request]) -> tuple[m.Refused, list[int]]:
    """Ten requests of each stranger until one is refused; that, and their connections."""
    strangers: list[int] = []
    for session in range(100, 200):
        connection = bench.member(session)
        for number in range(10):
            effects = bench.say(connection, make(session, number))
            refused = [e.message for e in effects if type(e.message) is m.Refused]  # type: ignore[union-attr]
            if refused:
                return refused[0], [*strangers, connection]  # type: ignore[return-value]
            if type(make(session, number)) is m.Gather:
                break  # it is answered when all have come
        strangers.append(connection)
    raise AssertionError("there is no limit")


def test_watches(bench: Bench) -> None:
    refused, strangers = fill(bench, lambda session, number: m.StartWatch(number, f"{session}/" + "x" * 900))
    assert refused.code == Code.NO_RESOURCES
    assert "watches of those who hold no rank would hold" in refused.sentence
    assert str(LIMIT_BYTES) in refused.sentence
    newcomer = bench.member(1)
    for number in range(SMALL_WATCHES):
        assert not isinstance(bench.say(newcomer, m.StartWatch(number, "bm/ranks/0"))[-1].message, m.Refused)  # type: ignore[union-attr]
    watching = member(bench, 2)
    for number in range(200):
        assert bench.say(watching, m.StartWatch(number, f"bm/{number}/"))[-1].message != refused  # type: ignore[union-attr]
    for connection in strangers:
        bench.leave(connection - 1)
    assert bench.state.tables.watches.room.held_bytes[False] == SMALL_WATCHES * watches.size_bytes("bm/ranks/0")


def test_ranges(bench: Bench) -> None:
    refused, strangers = fill(bench, lambda session, number: m.HoldRange(f"{session}/{number}" + "x" * 900, 1))
    assert refused.code == Code.NO_RESOURCES
    assert "ranges of those who hold no rank would hold" in refused.sentence
    holding = member(bench, 2)
    for number in range(50):
        assert isinstance(answer(bench.say(holding, m.HoldRange(f"bm/{number}", 1))), m.Number)
    for connection in strangers:
        bench.leave(connection - 1)
    assert bench.state.tables.ranges.room.held_bytes[False] == 0


def test_what_waits_in_gathers(bench: Bench) -> None:
    data = bytes(20_000)
    refused, strangers = fill(bench, lambda session, number: m.Gather(1, f"{session}", 0, 0, 2, data, 60))
    assert refused.code == Code.NO_RESOURCES
    assert "gathers that are not complete of those who hold no rank would hold" in refused.sentence
    little = bench.member(1)
    assert bench.say(little, m.Gather(1, "little", 0, 0, 2, bytes(SMALL_GATHER_BYTES), 60)) == []
    assert bench.say(member(bench, 2), m.Gather(1, "bm/x", 0, 0, 2, data, 60)) == [], "members have room"
    for connection in strangers[:2]:
        bench.leave(connection)
    assert bench.say(bench.member(3), m.Gather(1, "again", 0, 0, 2, data, 60)) == []
    assert bench.say(bench.member(4), m.Gather(1, "again", 0, 1, 2, data, 60)), (
        "that was all of it, and its room is free"
    )
    assert bench.state.tables.rendezvous.room.held_bytes == {True: len(data), False: (len(strangers) - 3) * len(data)}


def test_a_gather_that_is_repeated_counts_once(bench: Bench) -> None:
    data = bytes(LIMIT_BYTES // 2 + 1)
    first = bench.member(1)
    assert bench.say(first, m.Gather(7, "g", 0, 0, 2, data, 60)) == []
    bench.greet(12, 1)
    bench.say(12, m.Gather(7, "g", 0, 0, 2, data, 60))
    assert bench.state.tables.rendezvous.room.held_bytes[False] == len(data)
    bench.leave(12)
    assert bench.state.tables.rendezvous.room.held_bytes[False] == 0


def test_a_stranger_that_holds_the_whole_region_is_in_no_members_way(bench: Bench) -> None:
    whole = REGION_END - REGION_START
    assert isinstance(answer(bench.say(bench.member(1), m.HoldRange("x", whole))), m.Number)
    holding = member(bench, 2)
    first = answer(bench.say(holding, m.HoldRange("bm/0", whole // 2)))
    second = answer(bench.say(holding, m.HoldRange("bm/1", whole // 4)))
    assert isinstance(first, m.Number)
    assert isinstance(second, m.Number)
    assert first.value + whole // 2 <= second.value or second.value + whole // 4 <= first.value
    refused = answer(bench.say(bench.member(3), m.HoldRange("y", ALIGNMENT_BYTES)))
    assert isinstance(refused, m.Refused)
    assert refused.code == Code.NO_RESOURCES
