"""Ranks that the store still calls taken, though the process that had them is dead.

Our own store sees the end of a process's connection. Others, as etcd, see that its heartbeats stop: until then a rank
looks taken. A member's process that runs on this host has its rank socket; whoever has that one in hand knows that the
one the store means is gone, and has only to wait for the store to notice.
"""

from __future__ import annotations

import threading

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.membership.identity import host_identity
from memfabric_hybrid.membership.member_fact import host_in
from memfabric_hybrid.store import Store, WatchUpdate

log = logs.get(__name__)


def is_left(store: Store, key: str, deadline: Deadline) -> bool:
    """Whether the member that has the rank of that key belonged to this host; for who has its rank socket in hand."""
    fact = store.get(key, deadline=deadline)
    return fact is None or host_in(fact) == host_identity()


def wait_for_end(store: Store, key: str, deadline: Deadline) -> bool:
    """Until the store has noticed the death of who has that key; False when the deadline has passed."""
    ended = threading.Event()

    def look(update: WatchUpdate) -> None:
        if update.entries.get(key) is None and (update.snapshot or key in update.entries):
            ended.set()

    watch = store.watch(key, look, deadline=deadline)
    try:
        if not ended.is_set():
            log.info("%s belongs to a dead process of this host; waiting until the store has noticed that", key)
        return ended.wait(deadline.remaining_s())
    finally:
        watch.close()
