"""Our store, and the same on an etcd, as clients of the benchmark."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import tempfile
import time

from memfabric_hybrid import logs
from memfabric_hybrid.clock import Deadline
from memfabric_hybrid.store import StoreServer, WatchUpdate, connect
from support.store_peers import FACT, TIMEOUT_S, StorePeer

GROUP, FACTS, ROUNDS = "bm/ranks", "bm/0/one host/", "bm-"  # the names of members of a pool
START_S = 30.0
ERRORS = 3  # a thousand clients that wait for each other say so


class Ours(StorePeer):
    def __init__(self) -> None:
        super().__init__()
        logs.set_level(ERRORS)

    def serve(self, port: int) -> int:
        self._server = StoreServer(f"tcp://127.0.0.1:{port}")
        self._server.start()
        return os.getpid()

    def enter(self, port: int, rank: int, size: int) -> None:
        self._store = connect(self.url(port))
        self._store.claim_rank(GROUP, size, b"", wanted=rank, deadline=Deadline(TIMEOUT_S))
        self._store.set(f"{FACTS}{rank}", FACT, ephemeral=True, deadline=Deadline(TIMEOUT_S))
        self._store.watch(FACTS, self._on_update, deadline=Deadline(TIMEOUT_S))

    def url(self, port: int) -> str:
        return f"tcp://127.0.0.1:{port}"

    def _on_update(self, update: WatchUpdate) -> None:
        ranks = {int(key.removeprefix(FACTS)): value is not None for key, value in update.entries.items()}
        gone = self._members - set(ranks) if update.snapshot else set()
        self._noticed((rank for rank in ranks if ranks[rank]), gone | {rank for rank in ranks if not ranks[rank]})

    def leave(self) -> None:
        self._store.close()

    def barrier(self, tag: str, number: int, rank: int, size: int) -> None:
        self._store.barrier(f"{ROUNDS}{tag}", number, rank, size, deadline=Deadline(TIMEOUT_S))

    def all_gather(self, tag: str, number: int, rank: int, size: int, data: bytes) -> list[bytes]:
        return self._store.gather(f"{ROUNDS}{tag}", number, rank, size, data, deadline=Deadline(TIMEOUT_S))

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value, deadline=Deadline(TIMEOUT_S))

    def get(self, key: str) -> bytes:
        value = self._store.get(key, deadline=Deadline(TIMEOUT_S))
        assert value is not None
        return value


class OursOnEtcd(Ours):
    """One node, its data in memory: what it would take for a disk is left out."""

    def serve(self, port: int) -> int:
        self._folder = tempfile.TemporaryDirectory(prefix="memfabric-etcd-", dir="/dev/shm")
        url, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{_free_port()}"
        command = [
            "etcd", "--name", "one", "--data-dir", self._folder.name, "--listen-client-urls", url,
            "--advertise-client-urls", url, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
            "--initial-cluster", f"one={peers}", "--heartbeat-interval", "20", "--election-timeout", "200",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_S
        while not _serves(port):
            if self._process.poll() is not None or time.monotonic() > until:
                raise SystemExit("etcd did not start")
            time.sleep(0.02)
        return self._process.pid

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def url(self, port: int) -> str:
        return f"etcd://127.0.0.1:{port}#benchmark"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _serves(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
