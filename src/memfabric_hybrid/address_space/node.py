"""This process's place in a cluster: its membership, its exchange with the neighbours, and the pools it takes part in.

Dispatches what the exchange and the store report to the pools. One node per process and kind (bm, shm, offload).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memfabric_hybrid import _native, logs, settings
from memfabric_hybrid.address_space.exchange import Exchange, Wait
from memfabric_hybrid.address_space.messages import Answer, NotHere, Refuse, Request
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.errors import Code, Duplicated, FabricError, NotConnected, NotInit
from memfabric_hybrid.machine.interruption import Interruption
from memfabric_hybrid.machine.peer_credentials import OtherUser
from memfabric_hybrid.machine.service_thread import THREAD_ENDS_S
from memfabric_hybrid.membership.call_queue import CallQueue
from memfabric_hybrid.membership.member import Entry, Member
from memfabric_hybrid.store import FAREWELL_S, SessionEvent, SessionFailed, SessionLost, SessionRestored
from memfabric_hybrid.store.protection.data_tls import DataTls
from memfabric_hybrid.transports.nic import default_place, listen_place

if TYPE_CHECKING:
    from memfabric_hybrid.address_space.pool import Pool

log = logs.get(__name__)
PROVE_S = 10.0  # for the rank socket's new name, when the store has moved


class Node:
    """Made by `Node(entry, deadline)`: blocks until the process is a member, or raises. `leave()` undoes it."""

    def __init__(self, entry: Entry, deadline: Deadline, interruption: Interruption, nic: str = "") -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}
        self._leaving = False
        self._failure: str | None = None  # a thread that pools depend on is not there any more
        self.store_is_away = False
        self._has_entered = False
        place = listen_place(nic) if nic else default_place(entry.url.host, entry.url.port)
        self.data_tls = DataTls()
        _native.set_host_timeout(settings.heartbeat_timeout_s())
        self.notices = CallQueue(f"memfabric-{entry.kind}-events")  # the program's group-event handlers
        self.reannouncements = CallQueue(f"memfabric-{entry.kind}-reannounce")  # after a silence
        try:
            self.member = Member.enter(entry, self._on_session, deadline, interruption)
            self._has_entered = True
        except BaseException:
            self.data_tls.close()
            raise
        try:
            self._data_listener = _native.DataListener(*place, self.data_tls.identity)
            try:
                self.exchange = Exchange(
                    self.member.listener,
                    self._handle,
                    self._on_lost,
                    self._on_tick,
                    self._fail,
                    self._on_other_user,
                )
            except BaseException:
                self._data_listener.close()
                raise
        except BaseException:
            self.data_tls.close()
            self.member.leave(Deadline(FAREWELL_S))
            raise

    @property
    def data_address(self) -> str:
        """Where other hosts, and processes that must not map our memory, connect for data."""
        return self._data_listener.address

    def add(self, pool: Pool) -> None:
        """NotInit when the process leaves already: nobody would end the pool any more."""
        with self._lock:
            if self._leaving:
                raise NotInit(f"{pool.spec.title} cannot be created: this process is being uninitialised")
            if pool.spec.name in self._pools:
                raise Duplicated(
                    f"{pool.spec.title} exists already in this process; destroy it first or use another id"
                )
            self._pools[pool.spec.name] = pool

    def remove(self, pool: Pool) -> None:
        with self._lock:
            self._pools.pop(pool.spec.name, None)

    def pools(self) -> list[Pool]:
        with self._lock:
            return list(self._pools.values())

    @property
    def is_leaving(self) -> bool:
        return self._leaving

    def check_serving(self) -> None:
        """NotConnected when we could take part without hearing of anybody's death."""
        if self._failure is not None:
            raise NotConnected(f"{self._failure}; uninitialise this process and initialise it again")

    def begin_to_leave(self) -> list[Pool]:
        """No pool is added from now on. Those that are there have to be destroyed before `leave`."""
        with self._lock:
            self._leaving = True
            return list(self._pools.values())

    def leave(self, farewell: Deadline) -> None:
        """Every pool must be gone already, or about to be. Takes about as long as `farewell` allows, whoever hangs."""
        self._data_listener.close()
        self.data_tls.close()
        self.reannouncements.finish(farewell)
        self.exchange.close(farewell)
        self.member.leave(farewell)  # ends what waits for the store, in the re-announcing thread and elsewhere
        rest = Deadline(max(THREAD_ENDS_S, farewell.remaining_s()))
        self.reannouncements.close(rest)
        self.notices.close(rest)

    def abandon_after_fork(self) -> None:
        """In a forked child: nothing of the parent's may be used or kept open."""
        for pool in self._pools.values():  # without the lock: its holder may not exist here
            pool.abandoned = True
        self._data_listener.close()
        self.exchange.abandon_after_fork()
        self.member.abandon_after_fork()

    # ---- reports, each on the thread of whoever reports ------------------------------------------------------------

    def _handle(
        self, request: Request, fds: Sequence[int], other_user: OtherUser | None
    ) -> tuple[Answer, Sequence[int]] | Wait:
        with self._lock:
            pool = self._pools.get(request.object_name)
        if pool is None:
            if other_user is not None:  # on whose account the object may have gone: it would wait for us in vain
                return Refuse(int(Code.NOT_CONNECTED), f"a rank of this host refuses: {other_user.answer}"), ()
            return NotHere(), ()
        try:
            return pool.handle(request, fds, other_user)
        except FabricError as failure:
            log.warning("%s: refused a neighbour: %s", pool.spec.title, failure)
            return Refuse(int(failure.code), str(failure)), ()
        except Exception as failure:
            log.exception("%s: a neighbour's request failed", pool.spec.title)
            return Refuse(int(Code.ERROR), f"unexpected {type(failure).__name__}: {failure}"), ()

    def _on_lost(self, instance: int) -> None:
        for pool in self.pools():
            pool.on_lost(instance)

    def _on_other_user(self, stranger: OtherUser) -> None:
        for pool in self.pools():
            pool.group.meet_other_user(stranger.pid, str(stranger))

    def _on_tick(self) -> bool:
        return any([pool.on_tick() for pool in self.pools()])

    def _on_session(self, event: SessionEvent) -> None:
        self.store_is_away = isinstance(event, (SessionLost, SessionFailed))
        if isinstance(event, SessionLost):
            for pool in self.pools():
                pool.on_store_lost()
        if isinstance(event, SessionRestored) and self._has_entered:
            self.reannouncements.post(self._prove_rank)
        if isinstance(event, SessionRestored) and event.refused:
            for pool in self.pools():
                pool.on_refused(event.refused)
        elif isinstance(event, SessionFailed):
            self._fail(event.reason)

    def _prove_rank(self) -> None:
        try:
            self.member.proof.renew(Deadline(PROVE_S))
        except FabricError as failure:  # it is away again, and this is done when it is back
            log.info("rank %d: its socket has still its earlier name: %s", self.member.rank, failure)

    def _fail(self, reason: str) -> None:
        """Without that thread a pool would not notice the others' deaths: none may pretend to work."""
        self._failure = reason
        for pool in self.pools():
            pool.evict(f"{reason}, so this process cannot know who is there")
