"""Starts workers by forking a process that has imported what all of them need: importing costs more than most tests.

What is tested is not among it: every worker imports the package for itself. Workers are forked twice, and whoever
stands in between ends at once: so they become children of the test process, which adopts orphans and waits for them.

Started as `python -m support.fork_server <socket fd> <parent pid>`. A request is a pickled `Request` with descriptors;
the answer is a pid.
"""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from support import processes, worker_main

PRELOADED = ("asyncio", "concurrent.futures", "ctypes", "hmac", "msgspec", "numpy", "secrets", "tempfile", "uvloop")
MOST_BYTES = 1 << 20
MOST_FDS = 8
PID = 8  # bytes


class Request(NamedTuple):
    """With descriptors: what becomes standard output and error, the worker's pipe, and its script if it has one."""

    parent_pid: int
    index: int
    target: str
    environment: Mapping[str, str]
    folder: str


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
        socket.send_fds(self._socket, [pickle.dumps(tuple(request))], fds)
        answer = self._socket.recv(PID)
        if len(answer) != PID:
            raise RuntimeError(f"the fork server ended: {self._process.wait()}")
        return Forked(int.from_bytes(answer, "little"))


def serve(requests: socket.socket) -> Request | None:
    """Returns in every worker, with its request; None in the server itself, at the end."""
    while True:
        content, fds, _, _ = socket.recv_fds(requests, MOST_BYTES, MOST_FDS)
        if not content:
            return None
        between = os.fork()
        if between == 0:
            worker = os.fork()
            if worker != 0:
                requests.send(worker.to_bytes(PID, "little"))
                os._exit(0)
            requests.close()
            request = Request(*pickle.loads(content))
            become(request, fds)
            return request
        os.waitpid(between, 0)
        for fd in fds:
            os.close(fd)


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
    while os.getppid() != request.parent_pid:  # until the one in between has ended
        time.sleep(0.001)
    sys.argv = ["support.worker_main", *map(str, (pipe, request.parent_pid, request.index, request.target, *script))]


def main() -> int:
    requests, parent_pid = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    processes.die_with_parent(parent_pid)
    for name in PRELOADED:
        importlib.import_module(name)
    with requests:
        request = serve(requests)
    return 0 if request is None else worker_main.main()


if __name__ == "__main__":
    sys.exit(main())
