"""This process as a member of a cluster: its connection to the store, its rank, its rank socket, and its proof.

Owns its part in the store and, where this process runs the store, the server. Does not know what memory is.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import msgspec

from memfabric_hybrid import _native, logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Duplicated, FabricError, NoResources, ResourceInUse
from memfabric_hybrid.machine import file_descriptors
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.membership import left_ranks, member_fact, rank_socket
from memfabric_hybrid.membership.identity import host_identity
from memfabric_hybrid.membership.member_fact import MemberFact
from memfabric_hybrid.membership.rank_proof import RankProof
from memfabric_hybrid.store import SessionCallback, Store, StoreUrl, Watch, connect, new_session
from memfabric_hybrid.store.server import hosting
from memfabric_hybrid.store.server.listeners import AddressTaken

log = logs.get(__name__)
RANKS_KEY = "{kind}/ranks"  # the group in the store whose ranks the members of a kind claim
PRESENCE_KEY = "{kind}/members/here/{rank}"  # says that whoever claimed the rank has come in, see `_claim`
SECRET_BYTES = 16
SOME_RANKS = 16  # more than are needed: processes of this host that the store does not hear may hold some
LOOKS_AT_HOLDER, LOOK_S = 5, 0.05  # whether the socket that has the store's address serves anybody; a rank's is free


class Entry(msgspec.Struct, frozen=True):
    """How to enter a cluster. `hosts_store`: try to run the store here; `takes_over`: and again when it is lost."""

    url: StoreUrl
    kind: str  # "bm", "shm" or "offload": each kind has ranks of its own
    capacity: int
    wanted_rank: int | None
    hosts_store: bool
    takes_over: bool


class Member:
    """Made by `Member.enter`; `leave()` gives everything back."""

    def __init__(
        self,
        entry: Entry,
        store: Store,
        rank: int,
        instance: int,
        cluster: str,
        bound_socket: socket.socket,
        exchange_name: str,
        listener: socket.socket,
    ) -> None:
        self.entry = entry
        self.store = store
        self.rank = rank
        self.instance = instance  # random: tells the lives of one rank apart
        self.host = host_identity()
        self.secret = secrets.token_bytes(SECRET_BYTES)  # told to the store only: who knows it speaks for this process
        self.proof = RankProof(entry.kind, rank, store, cluster, bound_socket)
        self.exchange_name = exchange_name
        self.listener = listener  # there

    @classmethod
    def enter(
        cls,
        entry: Entry,
        on_session: SessionCallback,
        deadline: Deadline,
        interruption: Interruption,
    ) -> Member:
        """Connects (retrying until the deadline) and takes a rank; starts the store first where that is our part.

        Who starts it has a rank before anybody else is served: programs count on its being rank 0. NotStarted when it
        is interrupted. Nothing is left of an attempt that fails.
        """
        session = new_session()
        try:
            return cls._enter(entry, session, on_session, deadline, interruption)
        finally:
            hosting.admit_all(entry.url, session)

    @classmethod
    def _enter(
        cls, entry: Entry, session: bytes, on_session: SessionCallback, deadline: Deadline, interruption: Interruption
    ) -> Member:
        file_descriptors.allow_enough(entry.capacity)
        if entry.hosts_store:
            _host_or_find(entry, session, interruption)

        def take_over() -> None:
            """Where the store is now. Serves all at once: the members come back with the ranks they have."""
            _try_to_host(msgspec.structs.replace(entry, url=store.url or entry.url))

        instance = secrets.randbits(63)
        # A name that nobody can guess or take first: what listens there is this process.
        exchange_name = f"memfabric/{secrets.token_hex(SECRET_BYTES)}"
        with ExitStack() as undo:
            undo.callback(hosting.release_all, entry.kind)
            before_reconnect = take_over if entry.takes_over else None
            store = undo.enter_context(
                connect(entry.url, on_session=on_session, before_reconnect=before_reconnect, session=session)
            )
            listener = undo.enter_context(rank_socket.bind(exchange_name))
            with interruption.ends_by(store.give_up):
                _native._pause_point("member.enter.connecting")
                cluster = f"{entry.kind}@{store.peer_name(deadline=deadline)}"
                rank, bound_socket = _claim(entry, store, cluster, instance, deadline)
                undo.enter_context(bound_socket)
                _native._pause_point("member.enter.has_rank")
            undo.pop_all()
        log.info("rank %d of %d in %s", rank, entry.capacity, cluster)
        return cls(entry, store, rank, instance, cluster, bound_socket, exchange_name, listener)

    def host_of(self, rank: int, deadline: Deadline) -> str | None:
        """The host of who has that rank, as the store knows it; None if nobody has it."""
        return member_fact.host_in(self.store.get(self._rank_key(rank), deadline=deadline))

    def watch_rank(self, rank: int, callback: Callable[[], None], deadline: Deadline) -> Watch:
        """Calls back, on the store's event thread, when somebody may have got that rank or lost it; once at first."""
        return self.store.watch(self._rank_key(rank), lambda update: callback(), deadline=deadline)

    def _rank_key(self, rank: int) -> str:
        return f"{RANKS_KEY.format(kind=self.entry.kind)}/{rank}"

    def leave(self, farewell: Deadline) -> None:
        """Orderly end; the store forgets us at once. The listener belongs to whoever took it over."""
        self.listener.close()
        self.proof.close()
        self.store.hurry(farewell)
        self.store.close()
        hosting.release_all(self.entry.kind)

    def abandon_after_fork(self) -> None:
        """In a forked child: close the parent's sockets without a word on them."""
        self.listener.close()
        self.proof.abandon_after_fork()
        self.store.abandon_after_fork()


def _host_or_find(entry: Entry, session: bytes, interruption: Interruption) -> None:
    """The store runs here, or somebody listens where it should. AddressTaken: a socket is there that nobody serves."""
    for _ in range(LOOKS_AT_HOLDER):
        taken = _try_to_host(entry, session)
        if taken is None or hosting.somebody_listens(entry.url) or interruption.is_struck():
            return
        threading.Event().wait(LOOK_S)  # it may have been a store that was just ending
    raise AddressTaken(f"{taken}; what has it takes no connections, so it is no store")


def _try_to_host(entry: Entry, first: bytes | None = None) -> AddressTaken | None:
    """Starts the store here if its address is ours and free; otherwise somebody else runs it, or has its address."""
    if not threading.main_thread().is_alive():
        return None  # the program is over, and this process is about to leave too: no time to start anything
    if not hosting.is_local(entry.url):
        return None
    try:
        hosting.host(entry.url, entry.kind, first=first)
    except ResourceInUse as taken:
        log.debug("not starting a store: %s", taken)
        return taken if isinstance(taken, AddressTaken) else None
    return None


def _claim(entry: Entry, store: Store, cluster: str, instance: int, deadline: Deadline) -> tuple[int, socket.socket]:
    """A rank that both this host's rank sockets and the store call free.

    In this order: a rank that is asked for without its rank socket could be that of a living member which a restarted
    store does not know yet, and would be refused to its owner until it is given back. A rank that is wanted, or the
    last hope, is waited for if only the store does not know yet that its process is dead.
    """
    group = RANKS_KEY.format(kind=entry.kind)
    fact = member_fact.encode(MemberFact(os.getpid(), host_identity(), instance))
    free: Sequence[int] = range(entry.capacity)
    while True:
        bound = _bind_one(entry, cluster, free)
        if bound is None and len(free) < entry.capacity:  # held by processes of this host that the store does not hear
            free = store.free_ranks(group, entry.capacity, entry.capacity, deadline=deadline)
            bound = _bind_one(entry, cluster, free)
        if bound is None:
            break
        rank, listener = bound
        try:
            store.claim_rank(group, entry.capacity, fact, wanted=rank, deadline=deadline)
            _native._pause_point("member.claim.claimed")
            presence = PRESENCE_KEY.format(kind=entry.kind, rank=rank)
            store.set(presence, b"", deadline=deadline, ephemeral=True)  # until then the rank may be given to others
            return rank, listener
        except BaseException as refusal:
            listener.close()
            is_taken = isinstance(refusal, Duplicated)
            if not is_taken or (entry.wanted_rank is not None and not _await_end(store, group, rank, deadline)):
                raise
        free = store.free_ranks(group, entry.capacity, SOME_RANKS, deadline=deadline)
        if not free and entry.wanted_rank is None:
            free = _ended(entry, store, cluster, group, deadline)
    try:  # no rank socket, no rank: all are excluded, and the store refuses, perhaps for a better reason than that
        store.claim_rank(group, entry.capacity, fact, excluded=range(entry.capacity), deadline=deadline)
    except NoResources as full:
        raise NoResources(_who_has_all(entry, cluster, _ranks_in(store, group, deadline))) from full
    raise FabricError(
        f"the store gave a rank of {group!r} to a claim that excluded all; it is not a store of this kind"
    )


def _bind_one(entry: Entry, cluster: str, free: Sequence[int]) -> tuple[int, socket.socket] | None:
    """The first of these that may be ours as far as this host knows, with its rank socket."""
    wanted = entry.wanted_rank
    if wanted is not None:
        try:
            return wanted, rank_socket.bind(rank_socket.socket_name(cluster, wanted))
        except Duplicated as held:
            raise Duplicated(f"rank {wanted} is in use: {held}; stop that process or choose another rank") from held
    for rank in free:
        listener = rank_socket.try_to_bind(rank_socket.socket_name(cluster, rank))
        if listener is not None:
            return rank, listener
    return None


def _await_end(store: Store, group: str, rank: int, deadline: Deadline) -> bool:
    """The process that has the rank is dead, as its rank socket showed, and now the store knows it."""
    key = f"{group}/{rank}"
    return left_ranks.is_left(store, key, deadline) and left_ranks.wait_for_end(store, key, deadline)


def _ended(entry: Entry, store: Store, cluster: str, group: str, deadline: Deadline) -> Sequence[int]:
    """All ranks are taken: the lowest one whose process is dead, once the store knows that."""
    for rank in range(entry.capacity):
        listener = rank_socket.try_to_bind(rank_socket.socket_name(cluster, rank))
        if listener is not None:
            listener.close()
            if _await_end(store, group, rank, deadline):
                return (rank,)
    return ()


def _ranks_in(store: Store, group: str, deadline: Deadline) -> set[int]:
    names = (key.rpartition("/")[2] for key in store.prefix(f"{group}/", deadline=deadline).entries)
    return {int(name) for name in names if name.isdecimal()}


def _who_has_all(entry: Entry, cluster: str, registered: set[int]) -> str:
    """Some may be held by processes of this host that the store does not hear: stopped, or just entering."""
    sentence = f"all {entry.capacity} ranks of {cluster} are taken: {len(registered)} are registered in the store"
    unheard = sorted(set(range(entry.capacity)) - registered)
    if unheard:
        first = rank_socket.held_by(rank_socket.socket_name(cluster, unheard[0]))
        sentence += f", it does not hear from {unheard}, but rank {unheard[0]} {first}"
    return f"{sentence}; raise the world size or let members leave first"
