"""Many clients that do what they are told, all at the same time: forked processes, or threads where memory is short.

The processes are forked from one that has loaded everything, so that a thousand of them fit into a machine. Each client
has a socket to whoever leads the crowd: a call as a line of JSON comes in, its result goes out.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import selectors
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

RECEIVE_BYTES = 1 << 16


class TooSlow(Exception):
    """Not all clients were through in time."""


class ClientFailed(Exception):
    pass


class Crowd:
    """`make(rank)` gives the object whose methods `ask` calls; it is made in the client's process."""

    def __init__(self, make: Callable[[int], object], size: int, per_process: int = 1) -> None:
        self.size = size
        self._pids: dict[int, int] = {}  # by rank
        self._ends: dict[int, socket.socket] = {}  # ours
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        gc.collect()
        gc.freeze()  # collections would write to pages that all processes share
        for ranks in _shared_out(size, per_process):
            self._fork(make, ranks)

    def _fork(self, make: Callable[[int], object], ranks: Sequence[int]) -> None:
        pairs = {rank: socket.socketpair() for rank in ranks}
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for end in (*self._ends.values(), *(ours for ours, _ in pairs.values())):
                    end.close()
                _serve(make, {rank: theirs for rank, (_, theirs) in pairs.items()})
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        for rank, (ours, theirs) in pairs.items():
            theirs.close()
            self._pids[rank], self._ends[rank] = pid, ours

    def ask(self, call: str, *arguments: object, ranks: Sequence[int] | None = None, within_s: float) -> list[Any]:
        """What the method returned, for each of the ranks. TooSlow, ClientFailed."""
        asked = range(self.size) if ranks is None else ranks
        deadline = time.monotonic() + within_s
        line = json.dumps([call, *arguments]).encode() + b"\n"
        for rank in asked:
            self._ends[rank].sendall(line)
        with selectors.DefaultSelector() as selector:
            for rank in asked:
                selector.register(self._ends[rank], selectors.EVENT_READ, rank)
            answers = dict(self._answers(selector, len(asked), call, deadline, within_s))
        return [answers[rank] for rank in asked]

    def _answers(
        self, selector: selectors.BaseSelector, count: int, call: str, deadline: float, within_s: float
    ) -> Iterator[tuple[int, Any]]:
        parts: dict[int, bytes] = {}
        missing = count
        while missing:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TooSlow(f"{missing} of {count} clients were not through within {within_s:g} s")
            for key, _ in ready:
                end, rank = self._ends[key.data], key.data
                received = end.recv(RECEIVE_BYTES)
                if not received:
                    raise ClientFailed(f"{call}: client {rank} has ended")
                parts[rank] = parts.get(rank, b"") + received
                if parts[rank].endswith(b"\n"):
                    selector.unregister(end)
                    missing -= 1
                    result, failure = json.loads(parts[rank])
                    if failure:
                        raise ClientFailed(f"{call}: client {rank}: {failure}")
                    yield rank, result

    def kill(self, rank: int) -> None:
        """Its whole process; returns when that is gone."""
        os.kill(self._pids[rank], signal.SIGKILL)
        os.waitpid(self._pids[rank], 0)
        del self._pids[rank]

    def private_kib(self, rank: int) -> float:
        """Memory that the rank's process shares with nobody."""
        lines = Path(f"/proc/{self._pids[rank]}/smaps_rollup").read_text().splitlines()
        return float(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))

    def end(self) -> None:
        for end in self._ends.values():
            end.close()
        for pid in set(self._pids.values()):
            os.kill(pid, signal.SIGKILL)  # clients of others may have threads that never end by themselves
        for pid in set(self._pids.values()):
            os.waitpid(pid, 0)
        self._pids.clear()


def _shared_out(size: int, per_process: int) -> list[Sequence[int]]:
    """The last client has a process of its own: it is the one that dies."""
    *others, last = range(size)
    return [*(others[first : first + per_process] for first in range(0, len(others), per_process)), [last]]


def _serve(make: Callable[[int], object], ends: dict[int, socket.socket]) -> None:
    threads = [threading.Thread(target=_obey, args=(make, rank, end)) for rank, end in list(ends.items())[1:]]
    for thread in threads:
        thread.start()
    _obey(make, *next(iter(ends.items())))
    for thread in threads:
        thread.join()


def _obey(make: Callable[[int], object], rank: int, end: socket.socket) -> None:
    actor = make(rank)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError), end, end.makefile("rw") as lines:
        for line in lines:
            call, *arguments = json.loads(line)
            try:
                answer = [getattr(actor, call)(*arguments), ""]
            except Exception as failure:
                answer = [None, f"{type(failure).__name__}: {failure}"]
            print(json.dumps(answer), file=lines, flush=True)
