"""The proof that this process has its rank: the rank socket of that name, wherever the store is.

The place of the store is part of the name, so a store that moves makes a new one necessary. Where the address says what
the name will be, it is bound as soon as this process is told of the move: until it has registered there, which may take
as long as that store takes to come, it is all that keeps newcomers of this host from its rank. Nobody talks there.
"""

from __future__ import annotations

import socket
import threading

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.membership import rank_socket
from memfabric_hybrid.store import Store, StoreUrl, store_users
from memfabric_hybrid.store.url import peer_names

log = logs.get(__name__)
LOOK_S = 0.05  # whether the name is free: a newcomer may have it for a moment, and gets the rank in vain


class RankProof:
    """Thread-safe; of a forked child only `abandon_after_fork`."""

    def __init__(self, kind: str, rank: int, store: Store, cluster: str, bound: socket.socket) -> None:
        """`bound` has the rank's name in `cluster`, which is the store's place now."""
        self._kind = kind
        self._rank = rank
        self._store = store
        self._lock = threading.Lock()  # guards all below
        self._cluster = cluster
        self._url = store.url  # where the store was then
        self._bound = bound
        self._ahead: dict[str, socket.socket] = {}  # by name: at places where the store may be next
        self._closed = False
        store_users.follow(self)

    @property
    def url(self) -> StoreUrl | None:
        """Of the store that this is about."""
        return self._store.url

    def store_moved(self) -> None:
        """On the thread that says so. Waits for nobody."""
        url = self._store.url
        clusters = [] if url is None else [f"{self._kind}@{place}" for place in peer_names(url)]
        with self._lock:
            self._drop_ahead()
            if self._closed:
                return
            for cluster in clusters:
                name = rank_socket.socket_name(cluster, self._rank)
                bound = rank_socket.try_to_bind(name) if cluster != self._cluster else None
                if bound is not None:
                    self._ahead[name] = bound

    def renew(self, deadline: Deadline) -> None:
        """The store has heard this process, maybe at a new place: the socket has the name of that place from now on.

        Waits for the store, and for a newcomer that asks for our rank just now, in vain.
        """
        url = self._store.url
        if url == self._url:
            return
        cluster = f"{self._kind}@{self._store.peer_name(deadline=deadline)}"
        name = rank_socket.socket_name(cluster, self._rank)
        while not self._is_proved(name, cluster, url):
            if deadline.expired:
                holder = rank_socket.held_by(name)
                log.warning("rank %d in %s cannot be proved: %r %s", self._rank, cluster, name, holder)
                return
            threading.Event().wait(LOOK_S)

    def _is_proved(self, name: str, cluster: str, url: StoreUrl | None) -> bool:
        with self._lock:
            if self._closed:
                return True
            if cluster != self._cluster:
                bound = self._ahead.pop(name, None) or rank_socket.try_to_bind(name)
                if bound is None:
                    return False
                self._bound.close()
                self._bound, self._cluster = bound, cluster
            self._url = url
            if url == self._store.url:  # otherwise it has moved on
                self._drop_ahead()
            return True

    def _drop_ahead(self) -> None:
        for other in self._ahead.values():
            other.close()
        self._ahead.clear()

    def close(self) -> None:
        """Somebody else may have the rank."""
        store_users.unfollow(self)
        with self._lock:
            self._closed = True
            self._bound.close()
            self._drop_ahead()

    def abandon_after_fork(self) -> None:
        """In a forked child: closes the parent's sockets; one of its threads may hold the lock."""
        self._lock = threading.Lock()
        self._bound.close()
        self._drop_ahead()
