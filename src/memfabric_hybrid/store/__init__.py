"""The shared tables of a cluster: keys, sessions, watches, ranks, address ranges and rendezvous.

`connect(url)` gives a `Store`, which is the interface. Behind it a client reaches a `StoreServer` over tcp, or
an etcd; `InProcessStore` is the twin without sockets.
"""

from typing import TYPE_CHECKING

from memfabric_hybrid.store.interface import (
    FAREWELL_S,
    MOMENT_S,
    OtherIncarnation,
    SessionCallback,
    Snapshot,
    Store,
    Watch,
    WatchCallback,
    WatchUpdate,
)
from memfabric_hybrid.store.messages import Refusal
from memfabric_hybrid.store.schemes import connect, new_session
from memfabric_hybrid.store.session_events import (
    SessionConnected,
    SessionEvent,
    SessionFailed,
    SessionLost,
    SessionRestored,
)
from memfabric_hybrid.store.url import StoreUrl, parse_url

if TYPE_CHECKING:
    from memfabric_hybrid.store.in_process import InProcessServer, InProcessStore
    from memfabric_hybrid.store.server.server import StoreServer

__all__ = [
    "FAREWELL_S",
    "MOMENT_S",
    "InProcessServer",
    "InProcessStore",
    "OtherIncarnation",
    "Refusal",
    "SessionCallback",
    "SessionConnected",
    "SessionEvent",
    "SessionFailed",
    "SessionLost",
    "SessionRestored",
    "Snapshot",
    "Store",
    "StoreServer",
    "StoreUrl",
    "Watch",
    "WatchCallback",
    "WatchUpdate",
    "connect",
    "new_session",
    "parse_url",
]


def __getattr__(name: str) -> object:
    """The server brings asyncio along and the twin is for tests: members that run neither do not load them."""
    if name == "StoreServer":
        from memfabric_hybrid.store.server import server

        return server.StoreServer
    if name in ("InProcessServer", "InProcessStore"):
        from memfabric_hybrid.store import in_process

        return getattr(in_process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
