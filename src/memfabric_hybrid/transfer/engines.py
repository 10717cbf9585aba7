"""The engines of this process, so that its end, and a fork, find all of them."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.machine import forks
from memfabric_hybrid.store import FAREWELL_S


class _Engine(Protocol):
    def _end_by(self, farewell: Deadline) -> None: ...
    def _abandon_after_fork(self) -> None: ...


_engines: weakref.WeakSet[_Engine] = weakref.WeakSet()
_lock = threading.Lock()


def add(engine: _Engine) -> None:
    forks.notice()
    with _lock:
        _engines.add(engine)


def stop_all() -> None:
    """Every engine of this process ends; idempotent. They share one farewell time."""
    with _lock:
        engines = list(_engines)
    farewell = Deadline(FAREWELL_S)
    for engine in engines:
        engine._end_by(farewell)


def abandon_after_fork() -> None:
    """In a forked child: the parent's engines serve the parent's peers."""
    global _lock
    _lock = threading.Lock()
    for engine in list(_engines):
        engine._abandon_after_fork()
    _engines.clear()
