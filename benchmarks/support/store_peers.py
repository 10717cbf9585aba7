"""The stores that ours is compared with, behind one small interface: join all clients, gather 64 bytes from all."""

from __future__ import annotations

import abc
import os
import signal
import sys
from datetime import timedelta
from typing import Any

TIMEOUT_S = 60


class StorePeer(abc.ABC):
    """One per process; `connect` is called in the client processes, after the fork."""

    @abc.abstractmethod
    def serve(self, port: int) -> None:
        """In the server's process; returns when the server accepts clients."""

    @abc.abstractmethod
    def connect(self, port: int) -> None: ...

    @abc.abstractmethod
    def barrier(self, tag: str, number: int, rank: int, size: int) -> None: ...

    @abc.abstractmethod
    def all_gather(self, tag: str, number: int, rank: int, size: int, data: bytes) -> list[bytes]: ...

    @abc.abstractmethod
    def set(self, key: str, value: bytes) -> None:
        """Acknowledged: when it returns, everybody can read it."""

    @abc.abstractmethod
    def get(self, key: str) -> bytes: ...


class Ours(StorePeer):
    def __init__(self) -> None:
        from memfabric_hybrid.clock import Deadline  # here: the peers' environment has no package of ours
        from memfabric_hybrid.store import StoreServer, connect

        self._deadline, self._connect, self._server_kind = Deadline, connect, StoreServer

    def serve(self, port: int) -> None:
        self.server = self._server_kind(f"tcp://127.0.0.1:{port}")
        self.server.start()

    def connect(self, port: int) -> None:
        self.client = self._connect(f"tcp://127.0.0.1:{port}")

    def barrier(self, tag: str, number: int, rank: int, size: int) -> None:
        self.client.barrier(f"{tag}barrier", number, rank, size, deadline=self._deadline(TIMEOUT_S))

    def all_gather(self, tag: str, number: int, rank: int, size: int, data: bytes) -> list[bytes]:
        return self.client.gather(f"{tag}gather", number, rank, size, data, deadline=self._deadline(TIMEOUT_S))

    def set(self, key: str, value: bytes) -> None:
        self.client.set(key, value, deadline=self._deadline(TIMEOUT_S))

    def get(self, key: str) -> bytes:
        value = self.client.get(key, deadline=self._deadline(TIMEOUT_S))
        assert value is not None
        return value


class TorchStore(StorePeer):
    """torch.distributed.TCPStore (libuv server), with the usual counter barrier."""

    def __init__(self) -> None:
        import torch.distributed

        self._kind: Any = torch.distributed.TCPStore

    def serve(self, port: int) -> None:
        self.store = self._make(port, server=True)

    def connect(self, port: int) -> None:
        self.store = self._make(port, server=False)

    def _make(self, port: int, *, server: bool) -> Any:
        timeout = timedelta(seconds=TIMEOUT_S)
        return self._kind("127.0.0.1", port, None, server, timeout=timeout, wait_for_workers=False, use_libuv=True)

    def barrier(self, tag: str, number: int, rank: int, size: int) -> None:
        key = f"{tag}barrier{number}"
        if self.store.add(key, 1) == size:
            self.store.set(f"{key}/done", b"1")
        self.store.wait([f"{key}/done"])

    def all_gather(self, tag: str, number: int, rank: int, size: int, data: bytes) -> list[bytes]:
        self.store.set(f"{tag}gather{number}/{rank}", data)
        self.barrier(f"{tag}gather", number, rank, size)
        return list(self.store.multi_get([f"{tag}gather{number}/{other}" for other in range(size)]))

    def set(self, key: str, value: bytes) -> None:
        self.store.set(key, value)
        self.store.add("acknowledge", 0)  # set alone does not wait for the server

    def get(self, key: str) -> bytes:
        return bytes(self.store.get(key))


PEERS: dict[str, type[StorePeer]] = {"ours": Ours, "TCPStore": TorchStore}


def run_server(kind: str, port: int) -> None:
    """The server's process: says `ready`, then waits to be ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    peer = PEERS[kind]()
    peer.serve(port)
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    run_server(sys.argv[1], int(sys.argv[2]))
