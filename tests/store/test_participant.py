"""What every participant makes of a gather whose answers come late, whoever carries the messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotConnected, TimedOut
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.participant import Participant

Answer = Callable[[], m.ServerMessage]


def participant(*answers: Answer) -> tuple[Participant, list[m.Request]]:
    """Whose store says these, one after the other; and what it was asked."""
    asked: list[m.Request] = []
    left = iter(answers)

    def ask(
        self: Participant, request: m.Request, deadline: Deadline, incarnation: str | None = None
    ) -> m.ServerMessage:
        asked.append(request)
        return next(left)()

    kind = type("Asked", (Participant,), {"_ask": ask})
    kind.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # the others are not asked for
    return kind(), asked


def late() -> m.ServerMessage:
    raise TimedOut("one did not arrive")


def look_that_fails_the_second_time() -> Callable[[], None]:
    looks = iter((None, NotConnected("rank 2 is gone")))

    def look_around() -> None:
        failure = next(looks)
        if failure is not None:
            raise failure

    return look_around


def gathered(store: Participant) -> list[bytes]:
    return store.gather("g", 0, 0, 2, b"a", deadline=Deadline(60), look_around=look_that_fails_the_second_time())


def test_who_has_met_the_others_is_told_though_somebody_has_gone_since() -> None:
    store, asked = participant(late, lambda: m.Gathered([b"a", b"b"]))
    assert gathered(store) == [b"a", b"b"]
    assert asked[0] is asked[1], "the same call, which the store knows again"


def test_who_has_not_met_them_fails_with_what_it_saw() -> None:
    store, asked = participant(late, late)
    with pytest.raises(NotConnected, match="rank 2 is gone"):
        gathered(store)
    assert len(asked) == 2


def test_who_has_asked_nothing_yet_is_gone_at_once() -> None:
    store, asked = participant()

    def look_around() -> None:
        raise NotConnected("rank 2 is gone")

    with pytest.raises(NotConnected, match="rank 2 is gone"):
        store.gather("g", 0, 0, 2, b"a", deadline=Deadline(60), look_around=look_around)
    assert asked == []
