"""How much time this process did not get: stopped, or starved by others.

A thread that wants to wake every few milliseconds adds up by how much it was late. Calls are timed without it.
It also looks at the calls under way, so that one which never returns is found as well.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

TICK_S = 0.01
LATE_S = 0.02  # less than this is ordinary
LOOK_EVERY_S = 0.5
MOST_SPANS = 10_000


class StarvationMeter(threading.Thread):
    """`starved_s` grows; `look` is called now and then."""

    def __init__(self) -> None:
        super().__init__(name="starvation", daemon=True)
        self.starved_s = 0.0
        self.ticked_at = time.monotonic()
        self._spans: deque[tuple[float, float]] = deque(maxlen=MOST_SPANS)  # when it ended, how long it was
        self.look: Callable[[], None] = lambda: None
        self._stopping = threading.Event()

    def run(self) -> None:
        look_at = self.ticked_at + LOOK_EVERY_S
        while not self._stopping.wait(TICK_S):
            now = time.monotonic()
            late = now - self.ticked_at - TICK_S
            if late > LATE_S:
                self.starved_s += late
                self._spans.append((now, late))
            self.ticked_at = now
            if now >= look_at and late <= LATE_S:
                look_at = now + LOOK_EVERY_S
                self.look()

    def catch_up(self) -> None:
        """Returns when all lateness up to now is counted."""
        now = time.monotonic()
        while self.ticked_at < now and self.is_alive():
            time.sleep(TICK_S)

    def take_spans(self, longer_than_s: float) -> list[tuple[float, float]]:
        """From when to when this process got nothing, since the last call."""
        spans = [self._spans.popleft() for _ in range(len(self._spans))]
        return [(ended - late, ended) for ended, late in spans if late > longer_than_s]

    def stop(self) -> None:
        self._stopping.set()
        self.join()
