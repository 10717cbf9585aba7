"""The order of the faults: each once before any comes again, as the seed decides."""

from __future__ import annotations

import random
from collections import Counter

FAULTS = (
    "kill",
    "kill two",
    "kill while stopped",
    "stop briefly",
    "stop for long",
    "restart the store",
    "stop the store",
    "take descriptors",
    "close standard error",
    "break standard error",
    "signals that run",
    "signals that raise",
    "fork and check",
    "fork and use anew",
    "leave",
    "leave while busy",
)


class FaultSchedule:
    """Every fault has random choices of its own, which depend on the seed and its number only."""

    def __init__(self, seed: int, kinds: frozenset[str]) -> None:
        self._seed = seed
        self.kinds = kinds
        self._coming: list[str] = []
        self._number = 0
        self.injected: Counter[str] = Counter()

    @property
    def all_injected_once(self) -> bool:
        return self.kinds <= set(self.injected)

    def next(self) -> tuple[str, random.Random]:
        """The fault to inject now, and its random choices."""
        if not self._coming:
            self._coming = sorted(self.kinds)
            random.Random(f"{self._seed}:schedule:{self._number}").shuffle(self._coming)
        fault = self._coming.pop()
        self.injected[fault] += 1
        self._number += 1
        return fault, random.Random(f"{self._seed}:fault:{self._number}")
