"""Calls that must not run on the thread that noticed the need for them.

A group-event handler may call anything of this library, and re-announcing a share talks to the store and to peers; on
the store's event thread or the exchange's thread either would wait for itself. Each queue has one thread, started with
the first call, joined by `close()`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import NoResources
from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.machine.service_thread import ServiceThread

log = logs.get(__name__)
Call = Callable[[], object]


class CallQueue:
    """Calls run one after the other, in the order of posting."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()  # guards everything below
        self._calls: deque[Call] = deque()
        self._thread: ServiceThread | None = None
        self._idle = True  # no call is under way
        self._closed = False

    def post(self, call: Call) -> None:
        """Any thread; never blocks and never raises. A closed queue takes nothing more.

        Where no thread can be started the call stays queued, and the next one tries again.
        """
        with self._changed:
            if self._closed:
                return
            self._calls.append(call)
            self._changed.notify_all()
            if self._thread is None:
                self._start()

    def finish(self, deadline: Deadline) -> None:
        """Takes nothing more, and runs what is queued as far as the time allows; the rest is dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
            if thread is not None and not thread.is_current:
                self._changed.wait_for(lambda: self._idle and not self._calls, deadline.remaining_s())
            elif thread is not None:
                return  # called by a call: the thread goes on with the rest when that returns
            dropped = len(self._calls)
            self._calls.clear()
        if dropped:
            log.warning("%s: %d calls are dropped, because the process leaves before their turn", self._name, dropped)

    def close(self, deadline: Deadline) -> None:
        """`finish`, and the thread ends; one that is inside a call at the deadline is left behind."""
        self.finish(deadline)
        thread = self._thread
        if thread is not None and not thread.join(deadline) and not thread.is_current:
            log.warning(
                "%s: a call has not returned within %g s; its thread is left behind", self._name, deadline.timeout_s
            )

    def _start(self) -> None:
        thread = ServiceThread(self._name, self._run, self._fail)
        try:
            thread.start()
        except NoResources as refused:
            log.error("%s: %s", self._name, refused)
        else:
            self._thread = thread

    def _run(self) -> None:
        while (call := self._next()) is not None:
            callbacks.run(f"{self._name}: a call", call)

    def _next(self) -> Call | None:
        with self._changed:
            self._idle = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._calls or self._closed)
            self._idle = not self._calls
            return self._calls.popleft() if self._calls else None

    def _fail(self, reason: str) -> None:
        """The next call gets a new thread."""
        with self._changed:
            self._thread = None
