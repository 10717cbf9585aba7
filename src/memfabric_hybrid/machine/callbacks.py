"""Calls of the program's own functions: whatever they raise stays theirs.

A callback may call `sys.exit` or raise anything else. On a thread of ours that must end nothing but the callback: the
thread has others to serve. On a thread of the program an exit or an interrupt is the program's own and goes through.

A program may take a callback back and free what it works with: see `Revocable`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec

from memfabric_hybrid import _native, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import TimedOut
from memfabric_hybrid.machine.service_thread import is_current_one_of_ours

P = ParamSpec("P")
log = logs.get(__name__)


def run(what: str, callback: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Calls it. What it raises is logged and ignored; `what` names the callback in the log."""
    try:
        callback(*args, **kwargs)
    except BaseException as raised:
        if not isinstance(raised, Exception) and not is_current_one_of_ours():
            raise
        log.error("%s raised %s, which is ignored", what, type(raised).__name__, exc_info=raised)


class Revocable(Generic[P]):
    """A callback of the program that is exchanged or taken back at any time, on any thread, also its own."""

    def __init__(self, function: Callable[P, object] | None = None) -> None:
        self._function = function
        self._turn = threading.RLock()  # held while it runs: by one thread at a time, which may come back in here
        self._forks = _native.fork_count()

    def run(self, what: str, *args: P.args, **kwargs: P.kwargs) -> None:
        """`what` names it in sentences. Nothing happens while there is none."""
        with self._turn:
            function = self._function
            if function is not None:
                run(what, function, *args, **kwargs)

    def set(self, function: Callable[P, object] | None) -> None:
        """From now on no call of the one before begins."""
        self._function = function

    def settle(self, what: str, deadline: Deadline) -> None:
        """Returns when no call of one before runs any more, except one that has called this. TimedOut: it still does.

        In a forked child there is no thread in which it could run.
        """
        if _native.fork_count() != self._forks:
            return
        if not self._turn.acquire(timeout=deadline.remaining_s()):
            raise TimedOut(
                f"{what} has not returned within {deadline.timeout_s:g} s: no further call begins, but what it works "
                "with must stay until it does"
            )
        self._turn.release()
