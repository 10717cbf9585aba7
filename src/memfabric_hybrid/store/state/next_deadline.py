"""When somebody who waits must be told that it was in vain. Pure."""

from __future__ import annotations

NEVER = float("inf")


class NextDeadline:
    """`at` is not later than any deadline that is waited for; it may be earlier, when who waited is served by now."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = NEVER
