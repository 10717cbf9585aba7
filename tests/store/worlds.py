"""A store and as many participants as a test wants, in process, over tcp or on etcd; everything ends with the world."""

from __future__ import annotations

import atexit
import functools
import queue
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import (
    InProcessServer,
    InProcessStore,
    SessionCallback,
    Store,
    StoreServer,
    WatchUpdate,
)
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.client.watch_callbacks import WatchCallbacks
from memfabric_hybrid.store.etcd import key_requests
from memfabric_hybrid.store.etcd.gateway import api
from memfabric_hybrid.store.etcd.round import decode
from memfabric_hybrid.store.etcd.store import EtcdStore
from memfabric_hybrid.store.limits import MAX_EPHEMERAL_BYTES, MAX_VALUE_BYTES, MIB
from memfabric_hybrid.store.protection import protection as protections
from memfabric_hybrid.store.protection.private_key import PrivateKey
from memfabric_hybrid.store.protection.protection import Protection
from memfabric_hybrid.store.protection.tls_identity import TlsFiles, TlsIdentity
from support.certificates import Authority

uvloop.new_event_loop().close()  # the first loop of a process makes a pipe that stays; not in the middle of some test

PATIENCE_S = 20.0  # far beyond what anything here needs; a test that reaches it fails


def soon() -> Deadline:
    """A deadline that only a failing test meets."""
    return Deadline(PATIENCE_S)


def wait_until(condition: Callable[[], bool]) -> None:
    """Polls something that another thread or process brings about."""
    deadline = soon()
    while not condition():
        if deadline.expired:
            raise AssertionError(f"did not become true within {PATIENCE_S:g} s")
        time.sleep(0.001)


class InProcessWorld:
    max_value_bytes = MAX_VALUE_BYTES
    max_ephemeral_bytes = MAX_EPHEMERAL_BYTES
    foreign_url = "etcd://127.0.0.1:1"  # where this kind of store cannot be

    def __init__(self, url: str) -> None:
        self._server = InProcessServer()
        self._stores: list[InProcessStore] = []

    def participant(self, on_session: SessionCallback | None = None) -> Store:
        self._stores.append(InProcessStore(self._server, on_session=on_session))
        return self._stores[-1]

    def kill(self, store: Store) -> None:
        """The participant dies without a goodbye."""
        assert isinstance(store, InProcessStore)
        store.vanish()

    def watch_callbacks(self, store: Store) -> WatchCallbacks:
        assert isinstance(store, InProcessStore)
        return store._watch_callbacks

    def wait_for_arrivals(self, count: int) -> None:
        """Until so many calls wait inside the store for others of their rendezvous."""
        wait_until(lambda: len(self._server.state.tables.rendezvous.waiting) == count)

    def close(self) -> None:
        for store in self._stores:
            store.close()


class TcpWorld:
    max_value_bytes = MAX_VALUE_BYTES
    max_ephemeral_bytes = MAX_EPHEMERAL_BYTES
    foreign_url = "etcd://127.0.0.1:1"
    has_local_socket = False

    def __init__(self, url: str) -> None:
        self._url = url
        self._server = StoreServer(url, has_local_socket=self.has_local_socket, protection=self.protection)
        self._server.start()
        self._stores: list[Store] = []

    def protection(self) -> Protection:
        return protections.configured()

    def participant(self, on_session: SessionCallback | None = None) -> Store:
        self._stores.append(StoreClient(self._url, on_session=on_session, protection=self.protection))
        return self._stores[-1]

    def kill(self, store: Store) -> None:
        """All its sockets close at once and it does not come back, as when the kernel ends a process."""
        assert isinstance(store, StoreClient)
        store._channel.retire()
        store._dialer.close()
        store._pool.close()
        store._channel.close(soon())

    def watch_callbacks(self, store: Store) -> WatchCallbacks:
        assert isinstance(store, StoreClient)
        return store._channel.watch_callbacks

    def wait_for_arrivals(self, count: int) -> None:
        """Until so many calls wait inside the store for others of their rendezvous."""
        wait_until(lambda: len(self._server.state.tables.rendezvous.waiting) == count)

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self._server.stop()


class TlsWorld(TcpWorld):
    """With a token as well: everything that a connection can have to go through."""

    def protection(self) -> Protection:
        return Protection(b"a token of the test suite", member_identity())


@functools.cache
def member_identity() -> TlsIdentity:
    folder = tempfile.TemporaryDirectory(prefix="memfabric-certificates-")
    atexit.register(folder.cleanup)
    authority = Authority(Path(folder.name))
    member = authority.issue("member")
    files = TlsFiles((str(authority.file),), (str(authority.crl),), str(member.certificate))
    return TlsIdentity(files, PrivateKey(file=str(member.key)))


class LocalSocketWorld(TcpWorld):
    has_local_socket = True


class EtcdWorld:
    """An instance of its own on the etcd of the test session. Death is noticed when a lease of one second is over."""

    max_value_bytes = key_requests.MAX_VALUE_BYTES
    max_ephemeral_bytes = 4 * MIB  # quicker than what it is elsewhere
    foreign_url = "tcp://127.0.0.1:1"

    def __init__(self, url: str) -> None:
        self._url = url
        self._stores: list[EtcdStore] = []
        self._looking = EtcdStore(url)

    def participant(self, on_session: SessionCallback | None = None) -> Store:
        store = EtcdStore(self._url, on_session=on_session, heartbeat_timeout_s=1.0)
        store.max_ephemeral_bytes = self.max_ephemeral_bytes
        self._stores.append(store)
        return store

    def kill(self, store: Store) -> None:
        """All its sockets close at once and it does not come back, as when the kernel ends a process."""
        assert isinstance(store, EtcdStore)
        store._closed = True
        store._session.retire()
        store._endpoints.close()
        store._gateway.close()
        store._session.close(soon())
        store._gateway.close()

    def watch_callbacks(self, store: Store) -> WatchCallbacks:
        assert isinstance(store, EtcdStore)
        return store._session.watch_callbacks

    def wait_for_arrivals(self, count: int) -> None:
        wait_until(lambda: self._arrivals() == count)

    def _arrivals(self) -> int:
        rounds = api.of_prefix(self._looking._scope.names.rounds)
        found = self._looking._gateway.ask(api.RANGE, rounds, api.Found, soon())
        return sum(arrival is not None and not arrival.gave_up for arrival in (decode(kv.value) for kv in found.kvs))

    def close(self) -> None:
        for store in (*self._stores, self._looking):
            store.close()


World = InProcessWorld | TcpWorld | EtcdWorld
WORLDS: dict[str, type[InProcessWorld] | type[TcpWorld] | type[EtcdWorld]] = {
    "in_process": InProcessWorld,
    "tcp": TcpWorld,
    "local_socket": LocalSocketWorld,
    "tls": TlsWorld,
    "etcd": EtcdWorld,
}


class Seen:
    """What a watch was told, in order."""

    def __init__(self) -> None:
        self._updates: queue.SimpleQueue[WatchUpdate] = queue.SimpleQueue()
        self.view: dict[str, bytes] = {}

    def __call__(self, update: WatchUpdate) -> None:
        self._updates.put(update)

    def next(self) -> WatchUpdate:
        update = self._updates.get(timeout=PATIENCE_S)
        if update.snapshot:
            self.view = {}
        for key, value in update.entries.items():
            if value is None:
                del self.view[key]
            else:
                self.view[key] = value
        return update

    def until(self, condition: Callable[[dict[str, bytes]], bool]) -> None:
        while not condition(self.view):
            self.next()

    @property
    def empty(self) -> bool:
        return self._updates.empty()
