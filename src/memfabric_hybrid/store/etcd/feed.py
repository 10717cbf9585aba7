"""Calls that wait for something in etcd: each gets the events that concern it, in order, from the event thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store.etcd.gateway.api import Event


class News(NamedTuple):
    """The events of one revision. `is_gap`: some may be missing before these; read again what matters."""

    revision: int
    events: list[Event]
    is_gap: bool = False


class Subscription:
    """Used by the thread that waits."""

    def __init__(self, prefixes: tuple[bytes, ...], check_serving: Callable[[], None]) -> None:
        self.prefixes = prefixes
        self.since = 0  # every event after this revision comes to the inbox
        self.inbox: queue.SimpleQueue[News | None] = queue.SimpleQueue()  # None: look why nothing comes any more
        self._check_serving = check_serving

    def next(self, deadline: Deadline) -> News | None:
        """None when the deadline has passed. Raises when nothing will come any more."""
        self._check_serving()
        try:
            news = self.inbox.get(timeout=max(0.0, deadline.remaining_s()))
        except queue.Empty:
            return None
        if news is None:
            self._check_serving()
        return news


class Feed:
    """Any thread subscribes, the event thread publishes. `check_serving` raises once no events come any more."""

    def __init__(self, check_serving: Callable[[], None]) -> None:
        self._check_serving = check_serving
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []
        self._revision = 0  # the last one that was published

    @contextmanager
    def subscribed(self, *prefixes: bytes) -> Iterator[Subscription]:
        subscription = Subscription(prefixes, self._check_serving)
        with self._lock:
            self._subscriptions.append(subscription)
            subscription.since = self._revision
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions.remove(subscription)

    def publish(self, revision: int, events: list[Event]) -> None:
        for subscription in self._all(revision):
            concerned = [event for event in events if event.kv.key.startswith(subscription.prefixes)]
            if concerned:
                subscription.inbox.put(News(revision, concerned))

    def gap(self, revision: int) -> None:
        for subscription in self._all(revision):
            subscription.inbox.put(News(revision, [], is_gap=True))

    def wake(self) -> None:
        """Nothing will come any more."""
        for subscription in self._all():
            subscription.inbox.put(None)

    def abandon_after_fork(self) -> None:
        """In a forked child: the lock may be held by a thread that exists in the parent only."""
        self._lock = threading.Lock()
        self._subscriptions = []

    def _all(self, revision: int | None = None) -> list[Subscription]:
        with self._lock:
            if revision is not None:
                self._revision = revision
            return list(self._subscriptions)
