"""This process as a member of a cluster: its connection to the store, its rank, its doorplate.

Owns the store client and, where this process runs the store, the server. Does not know what memory is.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable

import msgspec

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, FabricError, NoResources, ResourceInUse
from memfabric_hybrid.membership import doorplate
from memfabric_hybrid.membership.identity import host_identity
from memfabric_hybrid.store import SessionEvent, StoreClient, StoreUrl, hosting

log = logs.get(__name__)
RANKS_KEY = "{kind}/ranks"  # the group in the store whose ranks the members of a kind claim
FAREWELL_S = 1.0  # how long an orderly goodbye may wait for a store that does not answer


class MemberFact(msgspec.Struct, frozen=True, array_like=True):
    """What a member publishes under its rank; for people and tools, not for routing."""

    pid: int
    host: str
    instance: int


class Entry(msgspec.Struct, frozen=True):
    """How to enter a cluster. `hosts_store`: try to run the store here; `takes_over`: and again when it is lost."""

    url: StoreUrl
    kind: str  # "bm" or "shm": each kind has ranks of its own
    capacity: int
    wanted_rank: int | None
    hosts_store: bool
    takes_over: bool


class Member:
    """Made by `Member.enter`; `leave()` gives everything back."""

    def __init__(
        self, entry: Entry, store: StoreClient, rank: int, listener: socket.socket, instance: int, cluster: str
    ) -> None:
        self.entry = entry
        self.store = store
        self.rank = rank
        self.listener = listener
        self.instance = instance  # random: tells the lives of one rank apart
        self.cluster = cluster
        self.host = host_identity()

    @classmethod
    def enter(cls, entry: Entry, on_session: Callable[[SessionEvent], None], deadline: Deadline) -> Member:
        """Connects (retrying until the deadline) and takes a rank; starts the store first where that is our part."""
        if entry.hosts_store:
            _try_to_host(entry)
        take_over = (lambda: _try_to_host(entry)) if entry.takes_over else None
        store = StoreClient(entry.url, on_session=on_session, before_reconnect=take_over)
        instance = secrets.randbits(63)
        try:
            cluster = f"{entry.kind}@{store.peer_name(deadline=deadline)}"
            rank, listener = _claim(entry, store, cluster, instance, deadline)
        except BaseException:
            store.close()
            hosting.release(entry.url, entry.kind)
            raise
        log.info("rank %d of %d in %s", rank, entry.capacity, cluster)
        return cls(entry, store, rank, listener, instance, cluster)

    def doorplate_of(self, rank: int) -> str:
        return doorplate.doorplate_name(self.cluster, rank)

    def leave(self) -> None:
        """Orderly end; the store forgets us at once. The listener belongs to whoever took it over."""
        self.listener.close()
        self.store.close()
        hosting.release(self.entry.url, self.entry.kind)

    def abandon_after_fork(self) -> None:
        """In a forked child: close the parent's sockets without a word on them."""
        self.listener.close()
        self.store.abandon_after_fork()


def _try_to_host(entry: Entry) -> None:
    """Starts the store here if its address is ours and free; otherwise somebody else runs it."""
    if not threading.main_thread().is_alive():
        return  # the program is over, and this process is about to leave too: no time to start anything
    if not hosting.is_local(entry.url):
        return
    try:
        hosting.host(entry.url, entry.kind)
    except ResourceInUse as taken:
        log.debug("not starting a store: %s", taken)


def _claim(
    entry: Entry, store: StoreClient, cluster: str, instance: int, deadline: Deadline
) -> tuple[int, socket.socket]:
    """A rank that both the store and this host's doorplates call free."""
    group = RANKS_KEY.format(kind=entry.kind)
    fact = msgspec.msgpack.encode(MemberFact(os.getpid(), host_identity(), instance))
    refused: dict[int, FabricError] = {}
    while True:
        try:
            rank = store.claim_rank(
                group, entry.capacity, fact, wanted=entry.wanted_rank, excluded=refused, deadline=deadline
            )
        except NoResources as full:
            if not refused:
                raise
            held = "; ".join(str(why) for why in refused.values())
            raise NoResources(f"{full} (ranks {sorted(refused)} are free in the store, but {held})") from full
        try:
            return rank, doorplate.hang(doorplate.doorplate_name(cluster, rank))
        except Duplicated as taken:
            store.release_rank(group, rank, deadline=deadline)
            if entry.wanted_rank is not None:
                raise Duplicated(f"rank {rank} is in use: {taken}; stop that process or choose another rank") from taken
            refused[rank] = taken
