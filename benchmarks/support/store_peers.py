"""The stores that are measured, ours and others, behind one small interface; and the program that runs a server of one.

store_peers.py KIND PORT
"""

from __future__ import annotations

import abc
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import ClassVar

TIMEOUT_S = 120
FACT = bytes(256)  # what a member publishes: about as much as ours does
NO_WATCH = "it has no watches"
NO_DEATHS = "it tells nobody of a client's death"


class StorePeer(abc.ABC):
    """One client. Made in the client's process; `serve` is called in the server's."""

    lacks: ClassVar[dict[str, str]] = {}  # "watch", "death" → why

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._members: set[int] = set()
        self._changed_at = 0.0

    @abc.abstractmethod
    def serve(self, port: int) -> int:
        """Returns the server's process number when it accepts clients."""

    def stop(self) -> None:
        """In the server's process, if that is not the server itself."""
        return

    @abc.abstractmethod
    def enter(self, port: int, rank: int, size: int) -> None:
        """Connects, takes the rank, publishes FACT under it, and watches what others publish, as far as it can."""

    @abc.abstractmethod
    def leave(self) -> None:
        """Takes back what it published, and closes the connection."""

    @abc.abstractmethod
    def barrier(self, tag: str, number: int, rank: int, size: int) -> None: ...

    @abc.abstractmethod
    def all_gather(self, tag: str, number: int, rank: int, size: int, data: bytes) -> list[bytes]: ...

    @abc.abstractmethod
    def set(self, key: str, value: bytes) -> None:
        """Acknowledged: when it returns, everybody can read it."""

    @abc.abstractmethod
    def get(self, key: str) -> bytes: ...

    def await_members(self, count: int, within_s: float) -> float:
        """When it saw that so many are there."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._members) == count, within_s):
                raise TimeoutError(f"sees {len(self._members)} members, not {count}")
            return self._changed_at

    def _noticed(self, come: Iterable[int], gone: Iterable[int]) -> None:
        """On whatever thread hears of it."""
        with self._changed:
            self._members.update(come)
            self._members.difference_update(gone)
            self._changed_at = time.monotonic()
            self._changed.notify_all()


PLACES = {
    "ours": ("support.store_ours", "Ours"),
    "TCPStore": ("support.store_torch", "TorchStore"),
    "redis": ("support.store_redis", "RedisStore"),
    "etcd": ("support.store_ours", "OursOnEtcd"),
}


def peer(kind: str) -> type[StorePeer]:
    """Loaded here, because no environment has them all."""
    module, name = PLACES[kind]
    found: type[StorePeer] = getattr(importlib.import_module(module), name)
    return found


def run_server(kind: str, port: int) -> None:
    """Says `ready` and the server's process number, then waits to be ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    server = peer(kind)()
    print("ready", server.serve(port), flush=True)
    signal.sigwait({signal.SIGTERM})
    server.stop()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    run_server(sys.argv[1], int(sys.argv[2]))
