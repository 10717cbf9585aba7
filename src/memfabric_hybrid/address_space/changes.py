"""The changes of one object: join, leave, extend and re-announce take turns, and its end comes last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import InvalidParam, TimedOut
from memfabric_hybrid.waiting_log import WaitingLog

log = logs.get(__name__)


class Changes:
    """`title` is the object's in sentences. Any thread; nobody waits longer than its own deadline."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._changed = threading.Condition()  # guards everything below
        self._busy = False  # somebody has the turn
        self._over = False  # no further turn begins
        self._last: Callable[[], None] | None = None  # the end, left to who has the turn

    @contextmanager
    def turn(self, deadline: Deadline) -> Iterator[None]:
        """TimedOut while another thread has it; InvalidParam once the end was asked for."""
        waiting = WaitingLog(log, deadline.timeout_s)
        while not self._take_turn(min(deadline.remaining_s(), waiting.due_in_s())):
            if deadline.expired:
                raise TimedOut(
                    f"{self._title}: another thread has been inside join, leave or extend for {deadline.timeout_s:g} s"
                )
            waiting.tell(f"{self._title}: another thread is inside join, leave or extend")
        try:
            yield
        finally:
            self._pass_on()

    def _take_turn(self, wait_s: float) -> bool:
        """False: another thread has had it all the time."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or not self._busy, wait_s)
            if self._over:
                raise InvalidParam(f"{self._title} is destroyed: the handle is closed")
            taken = not self._busy
            self._busy = True
            return taken

    def end(self, deadline: Deadline, last: Callable[[], None]) -> None:
        """Runs `last` after the present turn: here, or on the thread that has it if that takes too long. Once."""
        with self._changed:
            if self._over:
                self._changed.wait_for(lambda: not self._busy, deadline.remaining_s())
                return
            self._over = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._busy, deadline.remaining_s()):
                self._last = last
                log.warning(
                    "%s: another thread is inside join, leave or extend and waits for the store; the object's memory "
                    "is freed when that call returns",
                    self._title,
                )
                return
            self._busy = True
        try:
            last()
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        with self._changed:
            last, self._last = self._last, None
            if last is None:
                self._busy = False
                self._changed.notify_all()
                return
        try:
            last()
        finally:
            self._pass_on()
