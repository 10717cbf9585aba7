"""How one thread ends another thread's long call: `uninitialize` while `initialize` waits for a store, for instance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interruption:
    """The call has one end of it and says what would end it; any other thread strikes, as often as it likes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._struck = False
        self._enders: list[Callable[[], object]] = []

    def is_struck(self) -> bool:
        return self._struck

    def strike(self) -> None:
        """Any thread."""
        with self._lock:
            self._struck = True
            enders = list(self._enders)
        for end in enders:
            end()

    @contextmanager
    def ends_by(self, end: Callable[[], object]) -> Iterator[None]:
        """While the block runs, a strike calls `end`, on its own thread: it must not block. One from before counts."""
        with self._lock:
            self._enders.append(end)
            struck = self._struck
        try:
            if struck:
                end()
            yield
        finally:
            with self._lock:
                self._enders.remove(end)
