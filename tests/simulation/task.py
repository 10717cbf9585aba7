"""A thread of a simulated process: a generator that yields until when it waits, and is woken by others or by the time.

`value = yield until` gives what `wake` was told, or None when the time has come. While its process is stopped nothing
moves; what would have woken it does so when the process goes on.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from simulation.world import FOREVER

if TYPE_CHECKING:
    from simulation.process import Process

Result = TypeVar("Result")
Steps = Generator[float, Any, Result]  # what a thread does: `yield from` it


class Task:
    __slots__ = ("_process", "_steps", "_ticket", "is_over", "is_waiting")

    def __init__(self, process: Process, steps: Steps[None]) -> None:
        self._process = process
        self._steps = steps
        self._ticket = 0  # of the present wait: what belongs to an earlier one is late
        self.is_waiting = False
        self.is_over = False

    def start(self) -> None:
        self._process.run(self._step, None)

    def wake(self, value: object = None) -> None:
        """Once for each wait. Called by events, never by a task."""
        if self.is_waiting:
            self.is_waiting = False
            self._process.run(self._step, value)

    def end(self) -> None:
        """Its process is over; not to be called by itself."""
        self.is_over = True
        self.is_waiting = False
        self._steps.close()

    @property
    def next_wait(self) -> int:
        """The number of the wait that this task is about to begin."""
        return self._ticket + 1

    def wake_soon(self, wait: int) -> None:
        """For one task to wake another, if that is still in the same wait."""
        self._process.world.after(0.0, self._wake_if, wait, None)

    def _wake_if(self, ticket: int, value: object) -> None:
        if ticket == self._ticket:
            self.wake(value)

    def _step(self, value: object) -> None:
        process = self._process
        before, process.current = process.current, self
        try:
            until = self._steps.send(value)
        except StopIteration:
            self.is_over = True
            return
        finally:
            process.current = before
        self._ticket += 1
        self.is_waiting = True
        if until != FOREVER:
            process.world.at(until, self._wake_if, self._ticket, None)


class Signal:
    """Tasks that wait for something to change, and look for themselves whether it has."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[Task, int]] = []

    def wait(self, task: Task | None, until: float) -> Steps[None]:
        assert task is not None
        self._waiting.append((task, task.next_wait))
        yield until

    def notify(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task, wait in waiting:
            task.wake_soon(wait)
