"""Simulated time: what happens when, random choices from a seed, and the last things that happened before a failure.

No clock, no thread, no socket: the same seed is the same history, event by event.
"""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, NoReturn

FOREVER = math.inf
TRACE_LINES = 80  # of what came before a failure
SHOWN_CHARACTERS = 220


class Violation(Exception):
    """Something happened that must not."""


class World:
    def __init__(self, seed: str) -> None:
        self.now = 1000.0
        self.random = random.Random(seed)
        self.events = 0  # how many have happened: the number of the present one
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = itertools.count()
        self._trace: deque[tuple[float, int, tuple[object, ...]]] = deque(maxlen=TRACE_LINES)

    def at(self, when: float, action: Callable[..., object], *arguments: Any) -> None:
        """What is due at the same moment happens in the order in which it was asked for; what is overdue, now."""
        heappush(self._queue, (max(when, self.now), next(self._numbers), action, arguments))

    def after(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        heappush(self._queue, (self.now + delay_s, next(self._numbers), action, arguments))

    def run_until(self, end: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, action, arguments = heappop(queue)
            self.events += 1
            action(*arguments)
        self.now = end

    def note(self, *words: object) -> None:
        """For the trace; turned into text only when it is shown."""
        self._trace.append((self.now, self.events, words))

    def fail(self, sentence: str) -> NoReturn:
        raise Violation(sentence)

    def trace(self) -> str:
        lines = [f"  event {event} at {now - 1000:.6f} s: {_text(words)}" for now, event, words in self._trace]
        return "\n".join(lines)

    def digest(self) -> int:
        """Of the whole history: whatever went another way has made other choices, or another number of them."""
        return zlib.crc32(repr((self.events, self.now, self.random.getstate())).encode())


def _text(words: tuple[object, ...]) -> str:
    text = " ".join(str(word) for word in words)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
