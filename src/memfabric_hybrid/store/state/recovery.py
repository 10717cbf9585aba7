"""When a store that has just been started knows which ranks are free. Pure.

Members of an earlier store at the same address still hold their ranks, and tell the new one when they reconnect. Until
they have had the time to, a rank that looks free may be a living member's, so claims of newcomers wait. On the store's
own host nobody has to: there the rank socket of a living member is proof enough.
"""

from __future__ import annotations

from memfabric_hybrid.store.messages import ClaimRank
from memfabric_hybrid.store.state.effects import ConnectionId
from memfabric_hybrid.store.state.next_deadline import NEVER, NextDeadline

LONGEST_S = 60.0  # whatever heartbeat time-out somebody claims to have: newcomers would wait as long
RETURN_S = 0.6  # more than twice the longest pause of a client that tries to reconnect: who runs has been heard by then


class Recovery:
    """Waits for nobody unless it is begun."""

    def __init__(self, next_deadline: NextDeadline) -> None:
        self._next_deadline = next_deadline
        self._started_at: float | None = None
        self._over_at = NEVER
        self.waiting: dict[ConnectionId, ClaimRank] = {}  # in the order in which they came

    def begin(self, now: float) -> None:
        """The store starts, and may have members on other hosts."""
        self._started_at, self._over_at = now, now + RETURN_S

    def is_over(self, now: float) -> bool:
        return self._started_at is None or now >= self._over_at

    def heard(self, heartbeat_timeout_s: float) -> None:
        """Somebody was a member of an earlier store. So there may be others, and each has its heartbeat time-out."""
        if self._started_at is not None:
            self._over_at = max(self._over_at, self._started_at + min(heartbeat_timeout_s, LONGEST_S))

    def add(self, connection: ConnectionId, claim: ClaimRank) -> None:
        self.waiting[connection] = claim
        self._next_deadline.at = min(self._next_deadline.at, self._over_at)

    def withdraw(self, connection: ConnectionId) -> None:
        self.waiting.pop(connection, None)

    def take_due(self, now: float) -> dict[ConnectionId, ClaimRank]:
        """Those that may be served now."""
        if not self.is_over(now):
            return {}
        due, self.waiting = self.waiting, {}
        return due

    def deadline(self) -> float:
        return self._over_at if self.waiting else NEVER
