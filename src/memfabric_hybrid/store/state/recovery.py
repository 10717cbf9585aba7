"""When a store that has just been started knows which ranks are free. Pure.

Members of an earlier store at the same address still hold their ranks, and tell the new one when they reconnect. Until
they have had the time to, a rank that looks free may be a living member's, so claims of newcomers wait. On the store's
own host nobody has to: there the rank socket of a living member is proof enough.
"""

from __future__ import annotations

from typing import NamedTuple

from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.store.limits import MAX_WAITING_CLAIMS_BYTES, SMALL_CLAIM_BYTES, shown
from memfabric_hybrid.store.messages import ClaimRank
from memfabric_hybrid.store.state.effects import ConnectionId
from memfabric_hybrid.store.state.next_deadline import NEVER, NextDeadline

LONGEST_S = 60.0  # whatever heartbeat time-outs they have: newcomers would wait as long
RETURN_S = 0.6  # more than twice the longest pause of a client that tries to reconnect: who runs has been heard by then
_NUMBER_BYTES = 40  # of a rank that a claim excludes


class WaitingClaim(NamedTuple):
    request: ClaimRank
    heartbeat_timeout_s: float  # of who claims


class Recovery:
    """Waits for nobody unless it is begun.

    Nobody waits longer than its own heartbeat time-out, which members have in common: a stranger that claims to come
    back, with whatever time-out it likes, costs newcomers no more than a stopped member would.
    """

    def __init__(self, next_deadline: NextDeadline) -> None:
        self._next_deadline = next_deadline
        self._started_at: float | None = None
        self._patience_s = RETURN_S
        self.waiting: dict[ConnectionId, WaitingClaim] = {}  # in the order in which they came
        self._large_bytes = 0  # of those that are not small

    def begin(self, now: float) -> None:
        """The store starts, and may have members on other hosts."""
        self._started_at = now

    def is_over(self, now: float, heartbeat_timeout_s: float) -> bool:
        """For who has that time-out."""
        return now >= self._over_at(heartbeat_timeout_s)

    def heard(self, heartbeat_timeout_s: float) -> None:
        """Somebody was a member of an earlier store. So there may be others, and each has its heartbeat time-out."""
        self._patience_s = max(self._patience_s, heartbeat_timeout_s)

    def add(self, connection: ConnectionId, claim: ClaimRank, heartbeat_timeout_s: float) -> None:
        """It has been checked: only what others do meanwhile can be in its way. NoResources: too much waits."""
        large_bytes = _large_bytes(claim)
        if self._large_bytes + large_bytes > MAX_WAITING_CLAIMS_BYTES:
            raise NoResources(
                f"claim of a rank of {shown(claim.group)}: it holds {large_bytes} bytes while this store, which was "
                f"just started, waits for the members of an earlier one; {self._large_bytes} bytes wait, allowed are "
                f"{MAX_WAITING_CLAIMS_BYTES}; claims of at most {SMALL_CLAIM_BYTES} bytes do not count"
            )
        self._large_bytes += large_bytes
        self.waiting[connection] = WaitingClaim(claim, heartbeat_timeout_s)
        self._next_deadline.at = min(self._next_deadline.at, self._over_at(heartbeat_timeout_s))

    def withdraw(self, connection: ConnectionId) -> None:
        waiting = self.waiting.pop(connection, None)
        if waiting is not None:
            self._large_bytes -= _large_bytes(waiting.request)

    def take_due(self, now: float) -> dict[ConnectionId, ClaimRank]:
        """Those that may be served now."""
        due = {
            connection: waiting.request
            for connection, waiting in self.waiting.items()
            if self.is_over(now, waiting.heartbeat_timeout_s)
        }
        for connection in due:
            self.withdraw(connection)
        return due

    def deadline(self) -> float:
        return min((self._over_at(waiting.heartbeat_timeout_s) for waiting in self.waiting.values()), default=NEVER)

    def _over_at(self, heartbeat_timeout_s: float) -> float:
        if self._started_at is None:
            return -NEVER
        return self._started_at + max(RETURN_S, min(self._patience_s, heartbeat_timeout_s, LONGEST_S))


def _large_bytes(claim: ClaimRank) -> int:
    size_bytes = len(claim.value) + _NUMBER_BYTES * len(claim.excluded) + 4 * len(claim.group)
    return size_bytes if size_bytes > SMALL_CLAIM_BYTES else 0
