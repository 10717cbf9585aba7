"""Calls that may never return, beside the test: it goes on, and can end, whatever they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
LONG_S = 20.0  # far more than what a test waits for takes, far less than the time-outs that it configures


class Beside(Generic[T]):
    """Runs the call at once, on a daemon thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._results.append(call())
        except BaseException as error:
            self._errors.append(error)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> T:
        """What it returned or raised, within far less time than it could wait."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), f"has not returned within {LONG_S:g} s"
        for error in self._errors:
            raise error
        return self._results[0]


def wait_until(condition: Callable[[], bool]) -> None:
    """Looks again and again; for what has no event to wait for."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, f"not so within {LONG_S:g} s"
        time.sleep(0.002)
