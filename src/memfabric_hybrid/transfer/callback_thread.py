"""The callback thread: tells the program's callback which peers went away, in one life of an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memfabric_hybrid import _native, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.machine.service_thread import ServiceThread

log = logs.get(__name__)
PeerDownCallback = Callable[[str], Any]


class CallbackThread:
    """Has a thread of its own and knows one list of peers: that of the life it was made in.

    Knows no engine, so that a callback may do with it whatever it likes, and a forgotten engine can be garbage.
    """

    def __init__(self, failures: _native.PeerFailures, callback: PeerDownCallback) -> None:
        """NoResources when there is no thread to be had."""
        self.callback: PeerDownCallback | None = callback  # None: what happens meanwhile is told to nobody
        self.failed = False
        self._failures = failures
        self._thread = ServiceThread("peer-down callback", self._tell, self._fail)
        self._thread.start()

    def finish(self, session: str, deadline: Deadline) -> None:
        """After the end of the engine's life: gives the callback until the deadline to hear the rest."""
        if not self._thread.join(deadline) and not self._thread.is_current:
            log.warning(
                "the peer-down callback of engine %s has not returned within %g s after the engine's end; its thread "
                "is left behind",
                session,
                deadline.timeout_s,
            )

    def _tell(self) -> None:
        while (session := self._failures.wait()) is not None:
            callback = self.callback
            if callback is not None:
                callbacks.run(f"the peer-down callback for session {session}", callback, session)

    def _fail(self, reason: str) -> None:
        self.failed = True
