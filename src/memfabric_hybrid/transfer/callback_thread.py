"""The callback thread: tells a callback of the program what happens, in one life of an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.machine.service_thread import ServiceThread

log = logs.get(__name__)
PeerDownCallback = Callable[[str], Any]
Event = TypeVar("Event")


class CallbackThread(Generic[Event]):
    """Has a thread of its own and knows one list of events: that of the life it was made in.

    Knows no engine, so that a callback may do with it whatever it likes, and a forgotten engine can be garbage.
    """

    def __init__(
        self,
        name: str,
        wait: Callable[[], Event | None],
        callback: Callable[[Event], Any],
        session_of: Callable[[Event], str],
    ) -> None:
        """`wait` has the next event, None after the last. NoResources when there is no thread to be had."""
        self.callback = callbacks.Revocable[[Event]](callback)  # without one what happens is told to nobody
        self.failed = False
        self._name = name
        self._wait = wait
        self._session_of = session_of
        self._thread = ServiceThread(name, self._tell, self._fail)
        self._thread.start()

    def finish(self, session: str, deadline: Deadline) -> None:
        """After the end of the engine's life: gives the callback until the deadline to hear the rest."""
        if not self._thread.join(deadline) and not self._thread.is_current:
            log.warning(
                "the %s of engine %s has not returned within %g s after the engine's end; its thread is left behind",
                self._name,
                session,
                deadline.timeout_s,
            )

    def _tell(self) -> None:
        while (event := self._wait()) is not None:
            self.callback.run(f"the {self._name} for session {self._session_of(event)}", event)

    def _fail(self, reason: str) -> None:
        self.failed = True
