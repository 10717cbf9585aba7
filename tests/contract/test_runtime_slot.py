"""The slot of a capability's state: who starts, who stops, and who wins when both happen at once."""

from __future__ import annotations

import pytest

from memfabric_hybrid.api.runtime_slot import RuntimeSlot
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NotInit, TimedOut
from memfabric_hybrid.machine.interruption import Interruption
from support.threads import Beside, wait_until


class Runtime:
    ended = 0

    def end(self, farewell: Deadline) -> None:
        self.ended += 1


@pytest.fixture
def slot() -> RuntimeSlot[Runtime]:
    return RuntimeSlot("A test", "nothing here", farewell_s=1.0)


def test_start_that_succeeds_too_late_ends_what_it_made(slot: RuntimeSlot[Runtime]) -> None:
    made = Runtime()

    def make(interruption: Interruption) -> Runtime:
        stopping.append(Beside(slot.stop))
        wait_until(interruption.is_struck)
        return made

    stopping: list[Beside[None]] = []
    with pytest.raises(NotInit, match="A test was uninitialised"):
        slot.start(make)
    stopping[0].result()
    assert made.ended == 1
    with pytest.raises(NotInit, match="nothing here"):
        slot.current()


def test_start_that_waits_for_another_is_interrupted_with_it(slot: RuntimeSlot[Runtime]) -> None:
    def make(interruption: Interruption) -> Runtime:
        waiting.append(Beside(lambda: slot.start(make)))
        wait_until(lambda: len(slot._starts) == 2)
        stopping.append(Beside(slot.stop))
        wait_until(interruption.is_struck)
        raise TimedOut("it was interrupted")

    waiting: list[Beside[None]] = []
    stopping: list[Beside[None]] = []
    with pytest.raises(NotInit, match="while initialize"):
        slot.start(make)
    with pytest.raises(NotInit, match="while initialize"):
        waiting[0].result()
    stopping[0].result()
    slot.start(lambda interruption: Runtime())
    slot.stop()


def test_failure_of_its_own_stays_its_own(slot: RuntimeSlot[Runtime]) -> None:
    def make(interruption: Interruption) -> Runtime:
        raise TimedOut("no store")

    with pytest.raises(TimedOut, match="no store"):
        slot.start(make)
