"""Time, as the rest of the library sees it: one monotonic clock and deadlines made from it.

Pure modules get `now` as an argument; whoever has to wait gets a `Deadline`. Nothing waits without one.
"""

from __future__ import annotations

import time


def now() -> float:
    """Seconds on the monotonic clock; the only reading of time in this library."""
    return time.monotonic()


class Deadline:
    """A moment by which something must have happened."""

    __slots__ = ("at", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.at = now() + timeout_s

    def remaining_s(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self.at - now())

    @property
    def expired(self) -> bool:
        return now() >= self.at

    def __repr__(self) -> str:
        return f"<Deadline of {self.timeout_s:g} s, {self.remaining_s():.3f} s left>"
