"""A thread of ours: it has a name, is joined with a deadline, and never ends unnoticed.

Every Python thread that the library starts is one of these. Whoever starts it says what follows when it fails: whatever
depended on it must fail, too, instead of going on as if somebody served it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NoResources

log = logs.get(__name__)
THREAD_ENDS_S = 0.5  # for one that waits for nothing any more: the program's may keep the interpreter busy


class _Thread(threading.Thread):
    """Known by its type, so that any code can tell on whose thread it runs."""


def is_current_one_of_ours() -> bool:
    """Does a thread of the library run this, and not one of the program?"""
    return isinstance(threading.current_thread(), _Thread)


class ServiceThread:
    """`serve` runs until it returns. `on_failure(reason)` runs on the thread itself if an exception ended it before."""

    def __init__(self, name: str, serve: Callable[[], object], on_failure: Callable[[str], object]) -> None:
        self.name = name
        self._serve = serve
        self._on_failure = on_failure
        # daemon: a process that ends without saying goodbye to us must not hang; the orderly way is `join`.
        self._thread = _Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """NoResources when the machine gives this process no further thread."""
        try:
            self._thread.start()
        except RuntimeError as refused:
            raise NoResources(
                f"thread {self.name!r} cannot be started: {refused}; end other threads or processes of this user, or "
                "raise their limit (ulimit -u)"
            ) from refused

    @property
    def is_current(self) -> bool:
        return self._thread is threading.current_thread()

    def join(self, deadline: Deadline) -> bool:
        """True when it has ended. Still busy at the deadline: it is left behind. At once on the thread itself."""
        if self.is_current:
            return False
        self._thread.join(deadline.remaining_s())
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as failure:
            reason = f"thread {self.name!r} ended unexpectedly ({type(failure).__name__}: {_said(failure)})"
            log.critical("%s; what depends on it fails from now on", reason, exc_info=failure)
            self._on_failure(reason)


def _said(failure: BaseException) -> str:
    """What an exception says of itself; its text is made by code that may fail as well."""
    try:
        return str(failure)
    except Exception as silent:
        return f"its text cannot be shown: {type(silent).__name__}"
