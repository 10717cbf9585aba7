"""Who in this process uses which store: when a store moves, all of them follow. Thread-safe.

So do those who know its place for another reason: they are told when all who use it have been sent there.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from memfabric_hybrid.store.interface import Store
    from memfabric_hybrid.store.url import StoreUrl


class Follower(Protocol):
    @property
    def url(self) -> StoreUrl | None: ...  # of the store, as its user has it
    def store_moved(self) -> None: ...


_users: weakref.WeakSet[Store] = weakref.WeakSet()
_followers: weakref.WeakSet[Follower] = weakref.WeakSet()
_lock = threading.Lock()


def enter(user: Store) -> None:
    with _lock:
        _users.add(user)


def leave(user: Store) -> None:
    with _lock:
        _users.discard(user)


def follow(follower: Follower) -> None:
    with _lock:
        _followers.add(follower)


def unfollow(follower: Follower) -> None:
    with _lock:
        _followers.discard(follower)


def moved(from_url: StoreUrl, to_url: StoreUrl) -> None:
    """The store of that place is at another one: who uses it goes there.

    InvalidParam: a store of this kind cannot be there; then all is as before.
    """
    with _lock:
        users = [user for user in _users if user.url == from_url]
        followers = [follower for follower in _followers if follower.url == from_url]
    for user in users:
        user.update_url(to_url)
    for follower in followers:
        follower.store_moved()


def abandon_after_fork() -> None:
    """In a forked child: they are the parent's, and one of its threads may hold the lock."""
    global _followers, _lock, _users
    _lock = threading.Lock()
    _users = weakref.WeakSet()
    _followers = weakref.WeakSet()
