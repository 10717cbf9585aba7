"""Where a participant stands with its store, as its callers and its event thread see it together.

The thread hands over (tells the store what this participant owns) whenever it has found the store. Every hand-over has
a number, the generation: what a caller did under an older one may have been missed by the hand-over and must be
repeated. Callers wait here until there is a store, and learn why there is none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import FabricError, NotConnected, NotStarted
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.client.session_records import SessionRecords
from memfabric_hybrid.store.session_events import SessionEvent, SessionRestored
from memfabric_hybrid.store.url import StoreUrl


class Reach(Protocol):
    """The way to the store."""

    url: StoreUrl
    closing: threading.Event  # no call is served any more

    def unreachable(self, timeout_s: float, attempts: int, reason: str) -> FabricError: ...


class SessionState:
    """`changed` guards everything here, and what the owner keeps beside it."""

    def __init__(self, reach: Reach) -> None:
        self.changed = threading.Condition()
        self.records = SessionRecords()
        self.generation = 0
        self.is_ready = False  # the store knows us, and all that is ours
        self.was_ready = False  # once: the store has met us
        self.retired = False  # the end of the session is wanted
        self._reach = reach
        self._attempts = 0  # since the store was there last, the one under way included
        self._last_error = ""  # as text: an exception would keep frames alive
        self._refusal: FabricError | None = None  # why further attempts are of no use to who waits; without frames
        self._failure: str | None = None  # why the event thread is not there any more

    # --- called by the threads of the program -----------------------------------------------------------------------

    def wait(self, deadline: Deadline, start: Callable[[], None]) -> int:
        """Until the store knows us; the generation. `start` is called before, as long as the store is wanted.

        TimedOut names the store and the last error.
        """
        with self.changed:
            if not self._reach.closing.is_set():
                start()
            self.changed.wait_for(
                lambda: self.is_ready or self._failure or self._refusal or self._reach.closing.is_set(),
                deadline.remaining_s(),
            )
            self.check_serving()
            if self._refusal is not None and not self.is_ready:
                refusal, self._refusal = self._refusal, None  # whoever comes next waits for the next attempt
                raise refusal
            if not self.is_ready:
                raise self._reach.unreachable(deadline.timeout_s, self._attempts, self._last_error)
            return self.generation

    def check_serving(self) -> None:
        """NotStarted or NotConnected once nothing will be heard from the store any more."""
        if self._reach.closing.is_set():
            raise NotStarted(f"the client of store {self._reach.url} is closed")
        if self._failure is not None:
            raise NotConnected(f"store {self._reach.url}: {self._failure}; uninitialise and initialise again")

    def record(self, generation: int, request: m.Request, reply: m.ServerMessage) -> bool:
        """Remember what was done. False: a hand-over came between that may have missed it; do it again."""
        with self.changed:
            if generation != self.generation:
                return False
            self.records.record(request, reply)
            return True

    def give_back(self, request: m.Request) -> bool:
        """If the request releases something of ours: do not restore it any more, even if the store cannot be told."""
        with self.changed:
            return self.records.give_back(request)

    def wake(self) -> None:
        """The way to the store is closed: nobody waits any more."""
        with self.changed:
            self.changed.notify_all()

    # --- on the event thread ----------------------------------------------------------------------------------------

    def attempt(self) -> None:
        """To find the store begins."""
        with self.changed:
            self._attempts += 1

    def attempt_failed(self, error: Exception, refusal: FabricError | None) -> None:
        """`refusal`: why others will not do better, for those who wait for a first contact."""
        with self.changed:
            self._last_error = str(error)
            if not self.was_ready and refusal is not None:
                self._refusal = refusal
                self.changed.notify_all()

    def hand_over(self, known_revision: int, watches: dict[int, str]) -> m.Restore:
        """The next generation begins, with all that is ours. Under `changed`, which also guards that we are wanted."""
        self.generation += 1
        return self.records.restore_message(known_revision, watches)

    def is_served(self, event: SessionEvent | None) -> str:
        """Calls may go on, without what others have got meanwhile; what the store has of us."""
        with self.changed:
            if isinstance(event, SessionRestored):
                self.records.forget(event.refused)
            self.is_ready = True
            self._attempts, self._last_error, self._refusal = 0, "", None
            self.changed.notify_all()
            return str(self.records)

    def failed(self, reason: str) -> None:
        """There is no event thread any more, and there will be none."""
        with self.changed:
            self._failure = reason
            self.retired = True
            self.changed.notify_all()

    def abandon_after_fork(self) -> None:
        """In a forked child: threads of the parent may hold the lock."""
        self.changed = threading.Condition()
