"""torch's TCPStore (libuv server) as a client of the benchmark, with the usual counter barrier."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, ClassVar

import torch.distributed

from support.store_peers import FACT, NO_DEATHS, NO_WATCH, TIMEOUT_S, StorePeer


class TorchStore(StorePeer):
    lacks: ClassVar[dict[str, str]] = {"watch": NO_WATCH, "death": NO_DEATHS}

    def serve(self, port: int) -> int:
        self._store = self._make(port, server=True)
        return os.getpid()

    def enter(self, port: int, rank: int, size: int) -> None:
        self._store = self._make(port, server=False)
        self._store.add("ranks", 1)
        self._key = f"members/{rank}"
        self.set(self._key, FACT)

    def _make(self, port: int, *, server: bool) -> Any:
        timeout = timedelta(seconds=TIMEOUT_S)
        return torch.distributed.TCPStore(
            "127.0.0.1", port, None, server, timeout=timeout, wait_for_workers=False, use_libuv=True
        )

    def leave(self) -> None:
        self._store.delete_key(self._key)
        del self._store

    def barrier(self, tag: str, number: int, rank: int, size: int) -> None:
        key = f"{tag}/{number}"
        if self._store.add(key, 1) == size:
            self._store.set(f"{key}/done", b"1")
        self._store.wait([f"{key}/done"])

    def all_gather(self, tag: str, number: int, rank: int, size: int, data: bytes) -> list[bytes]:
        self._store.set(f"{tag}/{number}/{rank}", data)
        self.barrier(tag, number, rank, size)
        return list(self._store.multi_get([f"{tag}/{number}/{other}" for other in range(size)]))

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)
        self._store.add("acknowledge", 0)  # set alone does not wait for the server

    def get(self, key: str) -> bytes:
        return bytes(self._store.get(key))
