"""Calls that must not run on the thread that noticed the need for them.

A group-event handler may call anything of this library, and mending a membership talks to the store and to peers; on
the store's event thread or the exchange's thread either would wait for itself. Each queue has one thread, started with
the first call, joined by `close()`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from memfabric_hybrid import logs

log = logs.get(__name__)


class CallQueue:
    """Calls run one after the other, in the order of posting."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def post(self, call: Callable[[], object]) -> None:
        """Any thread; never blocks. A closed queue takes nothing more."""
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                # daemon: an unfinished callback must not keep a process alive that ends without uninitialize();
                # the orderly way, close(), joins it.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._queue.put(call)

    def close(self) -> None:
        """Runs what is queued, then stops. Callable from within a callback."""
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is None:
            return
        self._queue.put(None)
        if thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call()
            except Exception:
                log.exception("%s: a call raised", self._name)
