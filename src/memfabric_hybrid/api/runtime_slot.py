"""The place of a capability's state in a process: empty, or one runtime, between `initialize` and `uninitialize`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NotInit
from memfabric_hybrid.machine import forks
from memfabric_hybrid.machine.interruption import Interruption

log = logs.get(__name__)
MOMENT_S = 0.2  # for a start to clean up, when the farewell of the runtime has used up the time


class Ending(Protocol):
    def end(self, farewell: Deadline) -> None:
        """Gives back everything, by the deadline or soon after."""


R = TypeVar("R", bound=Ending)


class RuntimeSlot(Generic[R]):
    """`capability` names it in sentences; `absent` is what NotInit says while the slot is empty. Any thread."""

    def __init__(self, capability: str, absent: str, farewell_s: float) -> None:
        self._capability = capability
        self._absent = absent
        self._farewell_s = farewell_s
        self._runtime: R | None = None
        self._starts: list[Interruption] = []  # under way, and those that wait for them
        self._renew_locks()

    def _renew_locks(self) -> None:
        self._turn = threading.Lock()  # held while a runtime starts, so that two that start together start one
        self._changed = threading.Condition()  # guards the runtime and the starts; held for moments

    def start(self, make: Callable[[Interruption], R]) -> R | None:
        """The one there is, and nothing happens. NotInit when `stop` is called meanwhile, and nothing is left."""
        forks.notice()
        interruption = Interruption()
        with self._changed:
            self._starts.append(interruption)
        try:
            with self._turn:
                return self._start(make, interruption)
        finally:
            with self._changed:
                self._starts.remove(interruption)
                self._changed.notify_all()

    def _start(self, make: Callable[[Interruption], R], interruption: Interruption) -> R | None:
        if interruption.is_struck():
            raise self._interrupted()
        if self._runtime is not None:
            return self._runtime
        try:
            made = make(interruption)
        except FabricError as failure:
            if interruption.is_struck():
                raise self._interrupted() from failure
            raise
        with self._changed:
            if not interruption.is_struck():
                self._runtime = made
                return None
        made.end(Deadline(self._farewell_s))
        raise self._interrupted()

    def _interrupted(self) -> NotInit:
        return NotInit(
            f"{self._capability} was uninitialised, or the program ended, while initialize() was under way in another "
            "thread; initialise it again"
        )

    def stop(self) -> None:
        """Ends the runtime and every start under way; idempotent. Takes about the farewell time, whoever hangs."""
        forks.notice()
        farewell = Deadline(self._farewell_s)
        with self._changed:  # a start that is about to succeed does so before this, and is ended, or not at all
            runtime, self._runtime = self._runtime, None
            starts = list(self._starts)
            for interruption in starts:
                interruption.strike()
        if runtime is not None:
            runtime.end(farewell)
        with self._changed:
            over = self._changed.wait_for(
                lambda: not set(starts) & set(self._starts), max(MOMENT_S, farewell.remaining_s())
            )
        if not over:
            log.warning(
                "%s: an initialize() of another thread has not ended within %g s after it was interrupted; it will "
                "clean up when it returns",
                self._capability,
                self._farewell_s,
            )

    def tell_ignored(self, given: dict[str, object], used: dict[str, object]) -> None:
        """For `initialize` while there is one: a word about the arguments that differ and have no effect."""
        differing = [
            f"{name}={value} ({used.get(name)} is used)" for name, value in given.items() if value != used.get(name)
        ]
        if differing:
            log.warning(
                "%s is initialised already, so initialize() ignores %s; uninitialize it first",
                self._capability,
                ", ".join(differing),
            )

    def current(self) -> R:
        """The runtime, or NotInit."""
        forks.notice()
        runtime = self._runtime
        if runtime is None:
            raise NotInit(self._absent)
        return runtime

    def empty_after_fork(self) -> R | None:
        """In a forked child: what the parent had. Nobody holds a lock here, whatever the parent's threads held."""
        self._renew_locks()
        self._starts.clear()
        runtime, self._runtime = self._runtime, None
        return runtime
