"""Turns, one at a time, and the end that comes after the last of them."""

from __future__ import annotations

import threading

import pytest

from memfabric_hybrid.address_space.changes import Changes
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, TimedOut
from support.threads import Beside, wait_until


class Holder:
    """Has the turn until it is released."""

    def __init__(self, changes: Changes) -> None:
        self._entered = threading.Event()
        self._released = threading.Event()
        self._beside = Beside(lambda: self._hold(changes))
        assert self._entered.wait(10)

    def _hold(self, changes: Changes) -> None:
        with changes.turn(Deadline(10)):
            self._entered.set()
            assert self._released.wait(10)

    def release(self) -> None:
        self._released.set()
        self._beside.result()


@pytest.fixture
def changes() -> Changes:
    return Changes("bm object 7")


def test_turns_come_one_after_the_other(changes: Changes) -> None:
    holder = Holder(changes)
    order: list[str] = []

    def next_turn() -> None:
        with changes.turn(Deadline(10)):
            order.append("next")

    waiting = Beside(next_turn)
    order.append("held")
    holder.release()
    waiting.result()
    assert order == ["held", "next"]


def test_nobody_waits_longer_than_its_deadline(changes: Changes) -> None:
    holder = Holder(changes)
    with (
        pytest.raises(TimedOut, match=r"bm object 7: another thread has been inside .* for 0\.01 s"),
        changes.turn(Deadline(0.01)),
    ):
        raise AssertionError("two have the turn")
    holder.release()
    with changes.turn(Deadline(0)):
        pass


def test_a_turn_that_fails_is_over(changes: Changes) -> None:
    with pytest.raises(KeyError), changes.turn(Deadline(0)):
        raise KeyError
    with changes.turn(Deadline(0)):
        pass


def test_the_end_runs_once_and_is_the_last(changes: Changes) -> None:
    ends: list[int] = []
    changes.end(Deadline(5), lambda: ends.append(1))
    changes.end(Deadline(5), lambda: ends.append(2))
    assert ends == [1]
    with pytest.raises(InvalidParam, match="bm object 7 is destroyed"), changes.turn(Deadline(5)):
        raise AssertionError("a turn after the end")


def test_the_end_waits_for_the_turn_and_lets_nobody_else_have_it(changes: Changes) -> None:
    holder = Holder(changes)
    ends: list[int] = []
    ending = Beside(lambda: changes.end(Deadline(10), lambda: ends.append(1)))

    wait_until(lambda: changes._over)
    with pytest.raises(InvalidParam), changes.turn(Deadline(10)):
        ends.append(2)
    assert ends == []
    holder.release()
    ending.result()
    assert ends == [1]


def test_the_end_is_left_to_who_has_the_turn(changes: Changes, capsys: pytest.CaptureFixture[str]) -> None:
    holder = Holder(changes)
    ends: list[int] = []
    changes.end(Deadline(0.01), lambda: ends.append(threading.get_ident()))
    assert ends == []
    assert "the object's memory is freed when that call returns" in capsys.readouterr().err
    holder.release()
    assert len(ends) == 1
    assert ends != [threading.get_ident()]
