"""One watch of a simulated participant: what was seen and has not been dealt with, and who deals with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from memfabric_hybrid.store.client.watch_callbacks import WatchRegistration
from memfabric_hybrid.store.interface import WatchUpdate


class Watching:
    def __init__(self, prefix: str, handle: Callable[[WatchUpdate], None]) -> None:
        self.updates: deque[WatchUpdate] = deque()
        self.registration = WatchRegistration(prefix, self.updates.append)
        self.seen = (0, 0)  # life of the store, and its revision, of the last update
        self.handle = handle
