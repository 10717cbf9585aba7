"""The watches of one participant: whose callback gets which push. Callbacks run on one thread, the event thread."""

from __future__ import annotations

import threading

from memfabric_hybrid.machine import callbacks
from memfabric_hybrid.store import messages as m
from memfabric_hybrid.store.interface import WatchCallback, WatchUpdate


class WatchRegistration:
    """One watch. `has_snapshot` is set when the callback has seen the first one, or when there will be none."""

    def __init__(self, prefix: str, callback: WatchCallback) -> None:
        self.prefix = prefix
        self.closed = False
        self.has_snapshot = threading.Event()
        self.given_up = False  # set without a snapshot
        self._told = False  # the callback has been called
        self._revision = 0  # of the last snapshot: the changes before it are in it
        self._callback = callback

    def deliver(self, update: WatchUpdate) -> None:
        if self.closed or (not update.snapshot and update.revision <= self._revision):
            return
        if update.snapshot:
            self._revision = update.revision
        self._told = True
        callbacks.run(f"the callback of the watch on {self.prefix!r}", self._callback, update)
        if update.snapshot:
            self.has_snapshot.set()

    def give_up(self) -> None:
        """Nothing will come any more."""
        if not self._told:
            self.given_up = True
            self.has_snapshot.set()


class WatchCallbacks:
    """Any thread adds and removes, the event thread delivers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registrations: dict[int, WatchRegistration] = {}

    def add(self, number: int, registration: WatchRegistration) -> None:
        with self._lock:
            self._registrations[number] = registration

    def remove(self, number: int) -> None:
        with self._lock:
            registration = self._registrations.pop(number, None)
        if registration is not None:
            registration.closed = True

    def give_up(self) -> None:
        """Nothing will come any more: whoever waits for a snapshot goes on without."""
        with self._lock:
            registrations = list(self._registrations.values())
        for registration in registrations:
            registration.give_up()

    def prefixes(self) -> dict[int, str]:
        with self._lock:
            return {number: registration.prefix for number, registration in self._registrations.items()}

    def deliver(self, push: m.Push, incarnation: str) -> None:
        if type(push) is m.WatchSnapshot:
            with self._lock:
                registration = self._registrations.get(push.watch)
            if registration is not None:
                registration.deliver(WatchUpdate(True, incarnation, push.revision, push.entries))
        elif type(push) is m.Changed:
            update = WatchUpdate(False, incarnation, push.revision, push.entries)
            for registration in self._concerned(push.prefix):
                registration.deliver(update)

    def abandon_after_fork(self) -> None:
        """In a forked child: the lock may be held by a thread that exists in the parent only."""
        self._lock = threading.Lock()
        self._registrations.clear()

    def _concerned(self, prefix: str) -> list[WatchRegistration]:
        """A watch whose first snapshot is still under way will find the change in it."""
        with self._lock:
            return [w for w in self._registrations.values() if w.prefix == prefix and w.has_snapshot.is_set()]
