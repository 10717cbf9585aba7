"""The place of a capability's state in a process: empty, or one runtime, between `initialize` and `uninitialize`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from memfabric_hybrid.errors import NotInit


class Ending(Protocol):
    def end(self) -> None:
        """Gives back everything."""


R = TypeVar("R", bound=Ending)


class RuntimeSlot(Generic[R]):
    """`absent` is what NotInit says while the slot is empty. All methods may be called from any thread."""

    def __init__(self, absent: str) -> None:
        self._absent = absent
        self._lock = threading.Lock()  # held while a runtime starts, so that two that start together start one
        self._runtime: R | None = None

    def start(self, make: Callable[[], R]) -> None:
        """Again while there is one: nothing happens."""
        with self._lock:
            if self._runtime is None:
                self._runtime = make()

    def stop(self) -> None:
        """Ends the runtime; idempotent."""
        with self._lock:
            runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.end()

    def current(self) -> R:
        """The runtime, or NotInit."""
        runtime = self._runtime
        if runtime is None:
            raise NotInit(self._absent)
        return runtime

    def empty_after_fork(self) -> R | None:
        """In a forked child: what the parent had. Nobody holds a lock here, whatever the parent's threads held."""
        self._lock = threading.Lock()
        runtime, self._runtime = self._runtime, None
        return runtime
