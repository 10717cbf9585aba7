"""What the log says of a store that is lost and found again: one line each, and one in between when it takes long.

The event thread's only. A loss is news, and no more: a store that moves to another member, or ends a moment before us,
is no reason to warn. Who was warned is told the end of it just as loudly.
"""

from __future__ import annotations

import logging

from memfabric_hybrid import clock
from memfabric_hybrid.logs import Log

QUIET_LOSS_S = 1.0


class LossLog:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._lost_at: float | None = None  # until it is back
        self._warned = False

    def lost(self, url: object, reason: str) -> None:
        self._lost_at, self._warned = clock.now(), False
        self._log.info("store %s is lost: %s; connecting again", url, reason)

    def still_lost(self, url: object, error: object) -> None:
        """An attempt to find it has failed."""
        if self._lost_at is not None and not self._warned and clock.now() - self._lost_at > QUIET_LOSS_S:
            self._warned = True
            self._log.warning(
                "store %s is lost for %g s (%s); copies go on, control calls wait until it is back",
                url,
                QUIET_LOSS_S,
                error,
            )

    def back(self, url: object, registered: str) -> None:
        """Nothing is said of a first contact."""
        if self._lost_at is not None:
            away_s, self._lost_at = clock.now() - self._lost_at, None
            level = logging.WARNING if self._warned else logging.INFO
            self._log.log(level, "store %s is back after %.1f s; registered again: %s", url, away_s, registered)
