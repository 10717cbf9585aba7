"""Time, as the rest of the library sees it: one monotonic clock and deadlines made from it.

Pure modules get `now` as an argument; whoever has to wait gets a `Deadline`. Nothing waits without one.
"""

from __future__ import annotations

import time

import msgspec

now = time.monotonic  # seconds; the only reading of time in this library


class Deadline(msgspec.Struct, frozen=True, gc=False):
    """A moment by which something must have happened: so many seconds after this was made.

    A Struct, because every call of the store takes a new one: making it runs no Python code, which would be cold in a
    process that sleeps most of the time.
    """

    timeout_s: float
    since: float = msgspec.field(default_factory=time.monotonic)

    @property
    def at(self) -> float:
        return self.since + self.timeout_s

    def remaining_s(self) -> float:
        """Seconds left; never negative."""
        return max(0.0, self.at - now())

    @property
    def expired(self) -> bool:
        return now() >= self.at

    def extended(self, seconds: float) -> Deadline:
        """What is left of this one and so much more."""
        return Deadline(max(0.0, self.at + seconds - now()))

    def __repr__(self) -> str:
        return f"<Deadline of {self.timeout_s:g} s, {self.remaining_s():.3f} s left>"
