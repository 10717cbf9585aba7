"""Saying that a call waits, and for whom: after 2 s, and then at growing intervals. Who waits calls it now and then."""

from __future__ import annotations

from memfabric_hybrid import _native, clock
from memfabric_hybrid.logs import Log

FIRST_S = _native.FIRST_WAITING_NOTICE_S
GROWTH = 2.0
LONGEST_S = _native.LONGEST_WAITING_PAUSE_S


class WaitingLog:
    """Of one call that waits; the thread that waits uses it."""

    def __init__(self, log: Log, at_most_s: float | None = None) -> None:
        self._log = log
        self._at_most_s = at_most_s
        self._since = clock.now()
        self._interval_s = FIRST_S
        self._next = self._since + FIRST_S

    def due_in_s(self) -> float:
        """When there will be something to say; never negative."""
        return max(0.0, self._next - clock.now())

    def tell(self, missing: str) -> None:
        """Logs what is still missing, if it is time for that."""
        now = clock.now()
        if now < self._next:
            return
        limit = "" if self._at_most_s is None else f", at most {self._at_most_s:g} s"
        self._log.warning("waiting for %.0f s now%s: %s", now - self._since, limit, missing)
        self._interval_s = min(self._interval_s * GROWTH, LONGEST_S)
        self._next = now + self._interval_s
