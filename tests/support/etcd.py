"""Real etcd servers for tests: one node or several on this host, data in memory, killed and started at will."""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from support import ports, processes

FOLDER_PREFIX = "memfabric-etcd-"  # of the data, in /dev/shm
PATIENCE_S = 30.0
# Whole seconds are the shortest lease; etcd allows one second only if its elections are quicker than that.
QUICK = ("--heartbeat-interval", "20", "--election-timeout", "200")

_instances = itertools.count(1)


class EtcdNode:
    """One process. Started by the thread that lives as long as it should."""

    def __init__(self, name: str, folder: Path, client_port: int, peer_port: int, options: Sequence[str] = ()) -> None:
        self.name = name
        self.client_port = client_port
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self._data = folder / name
        self._log = folder / f"{name}.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.scheme = "https" if "--cert-file" in options else "http"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    def start(self, cluster: str) -> None:
        url, pid = f"{self.scheme}://{self.address}", os.getpid()
        command = [
            _program(), "--name", self.name, "--data-dir", str(self._data), "--log-outputs", "stderr",
            "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
            "--initial-cluster", cluster, *QUICK, *self._options,
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: processes.die_with_parent(pid),
            )

    def kill(self, *, lose_data: bool = False) -> None:
        """Without a word, as when its machine fails."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None
        if lose_data:
            shutil.rmtree(self._data)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def wait_until_it_serves(self) -> None:
        """It has a leader and answers."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.serves():
            if time.monotonic() > deadline or self._process is None or self._process.poll() is not None:
                raise AssertionError(f"etcd does not serve at {self.address}:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.005)

    def serves(self) -> bool:
        """Whether it has a leader and answers, now."""
        if self.scheme == "https":  # and asks for a certificate; that it accepts connections is all that can be seen
            return "ready to serve client requests" in self._log.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", self.client_port, timeout=1)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


class EtcdCluster:
    def __init__(self, nodes: list[EtcdNode]) -> None:
        self.nodes = nodes
        self._names = ",".join(f"{node.name}={node.peer_url}" for node in nodes)

    def start(self) -> None:
        for node in self.nodes:
            if not node.is_running:
                node.start(self._names)
        for node in self.nodes:
            node.wait_until_it_serves()

    def begin_start(self, node: EtcdNode) -> None:
        """Does not wait until it serves, which it may not do without others."""
        node.start(self._names)

    def stop(self) -> None:
        for node in self.nodes:
            if node.is_running:
                node.kill()

    def url(self, instance: str | None = None) -> str:
        """Of an instance that nobody else uses, unless it is named."""
        name = f"test-{os.getpid()}-{next(_instances)}" if instance is None else instance
        return f"etcd://{','.join(node.address for node in self.nodes)}#{name}"


@contextlib.contextmanager
def running(count: int = 1, options: Sequence[str] = ()) -> Iterator[EtcdCluster]:
    """A cluster of so many nodes, which serves."""
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir="/dev/shm"))
        undo.callback(shutil.rmtree, folder)
        nodes = [
            EtcdNode(
                f"n{number}",
                folder,
                undo.enter_context(ports.reserved_port()),
                undo.enter_context(ports.reserved_port()),
                options,
            )
            for number in range(count)
        ]
        cluster = EtcdCluster(nodes)
        undo.callback(cluster.stop)
        cluster.start()
        yield cluster


@functools.cache
def shared() -> EtcdCluster:
    """One node for all tests of this process; it ends with it."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(running())


def _program() -> str:
    found = shutil.which("etcd")
    if found is None:
        raise RuntimeError("tests of etcd:// stores need etcd: scripts/install-missing etcd-server")
    return found
