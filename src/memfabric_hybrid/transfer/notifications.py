"""Notifications: what the programs of other engines tell ours, and the three ways to take them.

Each notification is taken once: by the callback while there is one, else by whoever asks first, `notifications()` or an
`async for` over `notified()`. The queue itself is native and fills while this process's Python is busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from memfabric_hybrid import _native
from memfabric_hybrid.api import awaiting, boundary
from memfabric_hybrid.errors import NotInit
from memfabric_hybrid.transfer.callback_thread import CallbackThread


class Notification(NamedTuple):
    """`data`, as the program of the engine at `session` sent it; an answer can go there."""

    session: str
    data: bytes


NotificationCallback = Callable[[Notification], Any]


class NotificationStream:
    """Made by `TransferEngine.notified`: an asynchronous iterator that ends with the engine's life.

    Whoever is cancelled in it loses nothing, and may go on with it.
    """

    def __init__(self, queue: _native.NotificationQueue) -> None:
        self._queue = queue

    def __aiter__(self) -> NotificationStream:
        return self

    async def __anext__(self) -> Notification:
        try:
            taken = await self._next()
        except Exception as failure:
            boundary.report("TransferEngine.notified", failure)
            raise
        if taken is None:
            raise StopAsyncIteration
        return taken

    async def _next(self) -> Notification | None:
        while True:
            ended = self._queue.closed  # asked first: nothing comes after it
            for session, data in self._queue.take(1):
                return Notification(session, data)
            if ended:
                return None
            await awaiting.notified(self._queue.listen, self._queue.wake)


class Inbox:
    """One engine's notifications: which queue its life has, and who takes from it. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for moments
        self._queue: _native.NotificationQueue | None = None  # between `begin` and `end`
        self._callback: NotificationCallback | None = None
        self._thread: CallbackThread[Notification] | None = None

    def begin(self, queue: _native.NotificationQueue) -> None:
        """A life of the engine begins. Raises NoResources if no thread can be started for the callback."""
        with self._lock:
            self._queue = queue
            self._start_thread()

    def end(self) -> CallbackThread[Notification] | None:
        """The queue was closed. The callback's thread, if there is one, ends when it has told the rest."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._queue = None
        return thread

    def set_callback(self, callback: NotificationCallback | None) -> None:
        with self._lock:
            self._callback = callback
            if self._queue is not None and callback is None:
                self._queue.give_to_callback(False)  # one that is taken already is told to the last callback
            self._start_thread()

    def queue(self) -> _native.NotificationQueue:
        with self._lock:
            if self._queue is None:
                raise NotInit("the transfer engine is not initialised: call initialize() first")
            return self._queue

    def take_all(self) -> list[Notification]:
        return [Notification(*taken) for taken in self.queue().take(_native.MAX_QUEUED_NOTIFICATIONS)]

    def abandon_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._queue = self._thread = None

    def _start_thread(self) -> None:
        """Under the lock. One per life of the engine, once there is a callback; then the callback's are all of them."""
        if self._callback is None or self._queue is None:
            return
        if self._thread is None or self._thread.failed:
            self._thread = CallbackThread("notification callback", _waits(self._queue), self._callback, _session_of)
        self._thread.callback.set(self._callback)
        self._queue.give_to_callback(True)


def _waits(queue: _native.NotificationQueue) -> Callable[[], Notification | None]:
    def wait() -> Notification | None:
        taken = queue.wait()
        return None if taken is None else Notification(*taken)

    return wait


def _session_of(notification: Notification) -> str:
    return notification.session
