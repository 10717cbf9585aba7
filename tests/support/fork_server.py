"""Starts workers by forking a process that has imported what all of them need: importing costs more than most tests.

The package is among it, which programs do as well before they fork: importing it starts nothing, and the environment is
read when it is needed. Workers are forked twice, and whoever stands in between ends at once: so they become children of
the test process, which adopts orphans and waits for them.
Whoever stands in between has gone to the worker's place before: nothing of the worker was ever anywhere else.

Started as `python -m support.fork_server <socket fd> <parent pid>`. A request is a pickled `Request` with descriptors;
the answer is a pid, or 0 and why there is none.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from memfabric_hybrid import logs
from support import places, processes, worker_main
from support.places import Place

PRELOADED = ("numpy", "tempfile")  # besides
MOST_BYTES = 1 << 20
MOST_FDS = 8
PID = 8  # bytes
MOST_ANSWER_BYTES = 4096


class Request(NamedTuple):
    """With descriptors: what becomes standard output and error, the worker's pipe, its script if it has one, and the
    network namespace if its place has one.
    """

    parent_pid: int
    index: int
    target: str
    environment: Mapping[str, str]
    folder: str
    place: Place

    @classmethod
    def received(cls, content: bytes, fds: list[int]) -> Request:
        """As the other side sent it, with our number of the network's descriptor, which is taken from `fds`."""
        request = cls(*pickle.loads(content))
        if request.place.network is None:
            return request
        return request._replace(place=request.place._replace(network=fds.pop()))


class Forked:
    """A worker's process, as far as `subprocess.Popen` would be used for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


class ForkServer:
    """The test process's side. One for all tests; used by one thread at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        processes.adopt_orphans()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "support.fork_server"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the tests
                env={**os.environ, **environment, "OPENBLAS_NUM_THREADS": "1"},  # whoever forks has no threads
            )

    def start(self, request: Request, fds: Sequence[int]) -> Forked:
        network = [] if request.place.network is None else [request.place.network]
        socket.send_fds(self._socket, [pickle.dumps(tuple(request))], [*fds, *network])
        answer = self._socket.recv(MOST_ANSWER_BYTES)
        if len(answer) < PID:
            raise RuntimeError(f"the fork server ended: {self._process.wait()}")
        pid = int.from_bytes(answer[:PID], "little")
        if pid == 0:
            raise RuntimeError(f"worker {request.index} cannot start at {request.place}: {answer[PID:].decode()}")
        return Forked(pid)


def serve(requests: socket.socket) -> Request | None:
    """Returns in every worker, with its request; None in the server itself, at the end."""
    while True:
        content, fds, _, _ = socket.recv_fds(requests, MOST_BYTES, MOST_FDS)
        if not content:
            return None
        between = os.fork()
        if between == 0:
            request = Request.received(content, fds)
            worker = fork_at(request.place, requests)
            if worker != 0:
                requests.send(worker.to_bytes(PID, "little"))
                os._exit(0)
            requests.close()
            become(request, fds)
            return request
        os.waitpid(between, 0)
        for fd in fds:
            os.close(fd)


def fork_at(place: Place, requests: socket.socket) -> int:
    """`fork`, with a child that is at that place; if this cannot be, the test is told why, and there is no return."""
    try:
        places.go_to(place)
        return os.fork()
    except OSError as failure:
        requests.send(bytes(PID) + str(failure).encode())
        os._exit(1)


def become(request: Request, fds: Sequence[int]) -> None:
    """Turns this process into what `subprocess.Popen` would have started."""
    output, pipe, *script = fds
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    logs.install()  # again: it looked at the server's environment and standard error
    while processes.parent() != request.parent_pid:  # until the one in between has ended
        time.sleep(0.001)
    processes.die_with_parent(request.parent_pid)  # while we can see whether it is still there
    if request.place.network is not None:
        os.close(request.place.network)
    places.settle_in(request.place)
    parent_pid = processes.parent()  # 0 in a container: outside
    sys.argv = ["support.worker_main", *map(str, (pipe, parent_pid, request.index, request.target, *script))]


def main() -> int:
    requests, parent_pid = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    processes.die_with_parent(parent_pid)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # workers neither look through what they share nor take it apart at their end: a third of their time
    with requests:
        request = serve(requests)
    return 0 if request is None else worker_main.main()


if __name__ == "__main__":
    sys.exit(main())
