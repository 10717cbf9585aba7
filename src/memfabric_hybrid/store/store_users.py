"""Who in this process uses which store: when a store moves, all of them follow. Thread-safe."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memfabric_hybrid.store.interface import Store
    from memfabric_hybrid.store.url import StoreUrl

_users: weakref.WeakSet[Store] = weakref.WeakSet()
_lock = threading.Lock()


def enter(user: Store) -> None:
    with _lock:
        _users.add(user)


def leave(user: Store) -> None:
    with _lock:
        _users.discard(user)


def moved(from_url: StoreUrl, to_url: StoreUrl) -> None:
    """The store of that place is at another one: who uses it goes there.

    InvalidParam: a store of this kind cannot be there; then all is as before.
    """
    with _lock:
        users = [user for user in _users if user.url == from_url]
    for user in users:
        user.update_url(to_url)


def abandon_after_fork() -> None:
    """In a forked child: they are the parent's, and one of its threads may hold the lock."""
    global _lock, _users
    _lock = threading.Lock()
    _users = weakref.WeakSet()
