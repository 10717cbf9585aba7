"""What drives the processes of a campaign: one for each slot, whose lives begin and end, are stopped and go on.

`SlotDriver` knows who is alive, stopped or busy with a call, does what is due, and ends all at a violation. What the
slots depend on, and what is done to them, are a campaign's own.
"""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from chaos.event_log import EventLog, EventLogReader
from chaos.fault_schedule import FaultSchedule
from chaos.plan import LEAVE_S, SLOTS
from chaos.shared_state import Field, SharedState
from support.workers import Cluster, Pending, WorkerError

POLL_S = 0.02
WORKER_CALL_S = 40.0
MOST_IN_TROUBLE = 3  # slots at the same time


class Violation(AssertionError):
    """Something happened that must not; the report is made by whoever catches it."""


class WorkerCall(NamedTuple):
    """A call that a process's main thread is busy with."""

    what: str
    pending: Pending
    give_up_at: float
    then: Callable[[Any], None]


class SlotDriver(ABC):
    """Used by one thread. `workers` have been started; nobody has begun yet."""

    campaign: str
    seed_variable: str

    def __init__(self, seed: int, folder: Path, workers: Cluster, schedule: FaultSchedule) -> None:
        self.seed = seed
        self.folder = folder
        self.workers = workers
        self.schedule = schedule
        self.state = SharedState.make(folder / "shared_state")
        self.event_log = EventLog(folder / "driver.events", "driver")
        self.in_trouble: set[int] = set()  # slots that are dead, stopped, or busy with a call
        self.totals: list[dict[str, Any]] = []  # of workers that have ended
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._worker_calls: list[WorkerCall] = []
        self._readers: dict[Path, EventLogReader] = {}

    def close(self) -> None:
        self.event_log.close()
        self.state.close()

    @abstractmethod
    def begin_arguments(self, slot: int, life: int) -> tuple[Any, ...]:
        """Of `begin`, the first call to a new process."""

    @abstractmethod
    def store_report(self) -> str:
        """What the store has to say, after a failure."""

    # ---- lives ------------------------------------------------------------------------------------------------------

    def begin(self, slot: int) -> None:
        life = self.state.get(slot, Field.LIFE) + 1
        self.state.begin_life(slot)

        def begun(_: None) -> None:
            self.say(f"slot {slot} lives for the {life}. time, pid {self.workers.pid(slot)}")
            self.in_trouble.discard(slot)

        self.send(slot, begun, "begin", *self.begin_arguments(slot, life))

    def kill(self, slot: int) -> None:
        """Its totals are asked for before; what it does meanwhile, it still does."""
        self.state.now(slot, Field.DYING)
        self.workers.kill(slot)
        self.state.now(slot, Field.DEAD_SINCE)
        self.say(f"slot {slot} is dead")

    def note_totals(self, slot: int) -> None:
        self.totals.append(self.workers.call(slot, "totals"))

    def dismiss(self, slot: int) -> None:
        self.state.now(slot, Field.DYING)
        self.workers.dismiss(slot, LEAVE_S)
        self.state.now(slot, Field.DEAD_SINCE)
        self.say(f"slot {slot} has left")

    def revive(self, slot: int) -> None:
        self.workers.begin_start(slot)
        self.begin(slot)

    def stop(self, slot: int) -> None:
        self.state.now(slot, Field.STOPPED_SINCE)
        self.workers.kill(slot, signal.SIGSTOP)
        self.say(f"slot {slot} is stopped")

    def go_on(self, slot: int) -> None:
        self.state.now(slot, Field.LAST_STOPPED)
        self.state.set(slot, Field.STOPPED_SINCE, 0)
        self.workers.kill(slot, signal.SIGCONT)
        self.say(f"slot {slot} goes on")
        self.in_trouble.discard(slot)

    # ---- the course of things ---------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        self.event_log.write(what)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), action))

    def send(self, slot: int, then: Callable[[Any], None], function: str, *args: Any) -> None:
        """Lets the worker's main thread do something; the slot is in trouble until it has."""
        self.await_answer(f"slot {slot} in {function}", self.workers.begin(slot, function, *args), then)

    def await_answer(self, what: str, pending: Pending, then: Callable[[Any], None]) -> None:
        self._worker_calls.append(WorkerCall(what, pending, time.monotonic() + WORKER_CALL_S, then))

    def choose(self, choices: random.Random) -> int | None:
        """A slot that is well, if not too many are in trouble already."""
        well = [slot for slot in choices.sample(range(SLOTS), SLOTS) if slot not in self.in_trouble]
        if not well or len(self.in_trouble) >= MOST_IN_TROUBLE:
            return None
        self.in_trouble.add(well[0])
        return well[0]

    def wait(self, seconds: float) -> None:
        """Time goes by: what is due is done, and everybody is watched."""
        until = time.monotonic() + seconds
        while True:
            self._do_what_is_due()
            self._end_worker_calls()
            self.watch()
            if time.monotonic() >= until:
                return
            time.sleep(POLL_S)

    def wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise Violation(f"after {seconds:g} s still not: {what}")
            self.wait(POLL_S)

    def wait_for_quiet(self) -> None:
        """Every fault that has begun ends."""
        self.wait_for(lambda: not (self._due or self._worker_calls), 60, "the end of all faults")

    def watch(self) -> None:
        for path in self.folder.glob("*.events"):
            found = self._readers.setdefault(path, EventLogReader(path)).new_violations()
            if found:
                raise Violation("\n".join(found))
        for slot in range(SLOTS):
            if not self.state.get(slot, Field.DYING) and not self.workers.alive(slot):
                raise Violation(f"slot {slot} has died, and nobody killed it")

    def _do_what_is_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()

    def _end_worker_calls(self) -> None:
        for worker_call in list(self._worker_calls):
            if worker_call.pending.ready() or time.monotonic() > worker_call.give_up_at:
                self._worker_calls.remove(worker_call)
                try:
                    result = worker_call.pending.result(0.1)
                except WorkerError as failure:
                    raise Violation(f"{worker_call.what}: {failure}") from None
                worker_call.then(result)
