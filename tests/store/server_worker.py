"""A process that runs a store, or is a member of one, for tests that kill and stop processes."""

from __future__ import annotations

import atexit

from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import StoreServer
from memfabric_hybrid.store.client.client import StoreClient
from memfabric_hybrid.store.etcd.store import EtcdStore

_server: StoreServer | None = None
_client: StoreClient | None = None
_etcd: EtcdStore | None = None


def serve(url: str) -> None:
    global _server
    _server = StoreServer(url)
    _server.start()
    atexit.register(_server.stop)  # its loop must not want the interpreter when that has gone


def join(url: str, heartbeat_timeout_s: float) -> int:
    """A member with a rank and an ephemeral key; its rank."""
    global _client
    _client = StoreClient(url, heartbeat_timeout_s=heartbeat_timeout_s)
    _client.set("ephemeral", b"here", ephemeral=True, deadline=Deadline(20))
    return _client.claim_rank("g", 4, b"member", deadline=Deadline(20))


def join_etcd(url: str, heartbeat_timeout_s: float) -> int:
    """The same on an etcd, which runs already."""
    global _etcd
    _etcd = EtcdStore(url, heartbeat_timeout_s=heartbeat_timeout_s)
    _etcd.set("ephemeral", b"here", ephemeral=True, deadline=Deadline(20))
    return _etcd.claim_rank("g", 4, b"member", deadline=Deadline(20))


def hold_the_gil(seconds: float) -> None:
    """As a long native call does that does not release it."""
    import ctypes

    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def rank_value(rank: int) -> bytes | None:
    assert _client is not None
    return _client.get(f"g/{rank}", deadline=Deadline(20))
