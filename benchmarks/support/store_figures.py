"""What the clients of one store see, in a program of its own: it runs where the store's client is installed.

    store_figures.py KIND PORT SERVER_PID CLIENTS ROUNDS PATIENCE_S PROCESSES [COLLECTIVE...]

Prints one line of JSON for each figure when it is known: [name, value], or [name, null, why there is none]. Times are
µs, memory is KiB. PROCESSES is the most that clients may have, 0: as many as there is memory for. Without the
name of a collective all of them are measured.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.client_crowd import ClientFailed, Crowd, TooSlow
from support.process_costs import costs_of
from support.store_peers import StorePeer, peer

VALUE = b"x" * 64
COLLECTIVES: dict[str, tuple[Any, ...]] = {  # call and arguments
    "barrier": ("barrier",),
    "all-gather 64 B": ("all_gather", 64),
    "all-gather 4 KiB": ("all_gather", 4096),
}
SAMPLES = 1000  # of set and get
WARM_ROUNDS, FEWEST_ROUNDS = 2, 3
MEMORY_SHARE = 0.6  # of what is available, for client processes


class Client:
    """What one client of the crowd can be told to do. Times are those of the machine's monotonic clock."""

    def __init__(self, store: StorePeer, port: int, rank: int, size: int) -> None:
        self._store, self._port, self._rank, self._size = store, port, rank, size

    def enter(self) -> tuple[float, float]:
        began = time.monotonic()
        self._store.enter(self._port, self._rank, self._size)
        return began, time.monotonic()

    def await_members(self, count: int, within_s: float) -> float:
        return self._store.await_members(count, within_s)

    def barrier(self, tag: str, rounds: int) -> tuple[list[float], float]:
        """When it was through, for each round; and the CPU time of all."""
        ends, spent_s = [], time.thread_time()
        for i in range(rounds):
            self._store.barrier(tag, i, self._rank, self._size)
            ends.append(time.monotonic())
        return ends, time.thread_time() - spent_s

    def all_gather(self, tag: str, rounds: int, size_bytes: int) -> tuple[list[float], float]:
        ends, spent_s = [], time.thread_time()
        for i in range(rounds):
            parts = self._store.all_gather(tag, i, self._rank, self._size, bytes([self._rank % 256]) * size_bytes)
            ends.append(time.monotonic())
            middle = self._size // 2
            assert len(parts) == self._size
            assert parts[middle] == bytes([middle % 256]) * size_bytes
        return ends, time.thread_time() - spent_s

    def set(self) -> float:
        """Median µs."""
        return _median_us(lambda i: self._store.set(f"key{i % 100}", VALUE))

    def get(self) -> float:
        return _median_us(lambda i: self._store.get(f"key{i % 100}"))

    def leave(self) -> tuple[float, float]:
        began = time.monotonic()
        self._store.leave()
        return began, time.monotonic()


def _median_us(action: Callable[[int], object]) -> float:
    samples = []
    for i in range(SAMPLES):
        start = time.perf_counter_ns()
        action(i)
        samples.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(samples)


class Measurement:
    """One store, so many clients. Every figure has the same patience; what follows one that failed is not measured."""

    def __init__(
        self, kind: str, port: int, server: int, size: int, rounds: int, patience_s: float, chosen: list[str]
    ) -> None:
        self._kind = peer(kind)
        self._port, self._server, self._size = port, server, size
        self._rounds, self._patience_s = rounds, patience_s
        self._chosen = chosen
        self._now = ""  # the figure under way

    def run(self, most_processes: int) -> None:
        try:
            per_process = self._clients_per_process(most_processes)
            self._crowd = Crowd(self._client, self._size, per_process)
            try:
                self._measure()
            finally:
                self._crowd.end()
        except (TooSlow, ClientFailed) as failure:
            tell(self._now, None, str(failure))

    def _client(self, rank: int) -> Client:
        return Client(self._kind(), self._port, rank, self._size)

    def _clients_per_process(self, most_processes: int) -> int:
        """Of one client alone: what its process costs, and how many of them there can be."""
        self._now = "process, KiB"
        alone = Crowd(self._client, 1)
        try:
            before_kib = alone.private_kib(0)
            alone.ask("enter", within_s=self._patience_s)
            cost_kib = alone.private_kib(0)
            alone.ask("leave", within_s=self._patience_s)
        finally:
            alone.end()
        tell("process, KiB", cost_kib)
        tell("client in it, KiB", cost_kib - before_kib)
        available_kib = int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0])
        most = most_processes or max(1, int(available_kib * MEMORY_SHARE / cost_kib))
        per_process = math.ceil(self._size / most)
        tell("clients per process", per_process)
        return per_process

    def _measure(self) -> None:
        self._enter()
        for name, (call, *arguments) in COLLECTIVES.items():
            if not self._chosen or name in self._chosen:
                self._collective(name, call, *arguments)
        for name in ("set", "get"):
            self._now = name
            (median_us,) = self._crowd.ask(name, ranks=[0], within_s=self._patience_s)
            tell(name, median_us)
        self._end()

    def _enter(self) -> None:
        *first, last = range(self._size)
        self._now = "start"
        before = costs_of(self._server)
        times = self._crowd.ask("enter", ranks=first, within_s=self._patience_s)
        self._tell_seen("start", min(began for began, _ in times), first, max(ended for _, ended in times))
        spent = costs_of(self._server) - before
        tell("server per client, KiB", spent.resident_kib / len(first))
        tell("start, server CPU per client", spent.cpu_ms * 1e3 / len(first))
        self._now = "join"
        before = costs_of(self._server)
        ((began, ended),) = self._crowd.ask("enter", ranks=[last], within_s=self._patience_s)
        tell("join", (ended - began) * 1e6)
        self._tell_seen("join seen by all", began, range(self._size))
        tell("join, server CPU", (costs_of(self._server) - before).cpu_ms * 1e3)

    def _tell_seen(self, name: str, since: float, by: range | list[int], otherwise: float | None = None) -> None:
        """When all of them saw all of them; of a store without watches when all of them were through."""
        self._now = name
        if "watch" not in self._kind.lacks:
            count = len(by)
            seen_at = self._crowd.ask("await_members", count, self._patience_s, ranks=by, within_s=self._patience_s)
            tell(name, (max(seen_at) - since) * 1e6)
        elif otherwise is not None:
            tell(name, (otherwise - since) * 1e6)
        else:
            tell(name, None, self._kind.lacks["watch"])

    def _collective(self, name: str, call: str, *arguments: object) -> None:
        """As many rounds as there is patience for, within reason."""
        self._now = name
        tag = name.replace(" ", "-")
        warm = self._crowd.ask(call, f"{tag}-warm", WARM_ROUNDS, *arguments, within_s=self._patience_s)
        (estimated_s,) = _rounds_s([ends for ends, _ in warm])
        rounds = max(FEWEST_ROUNDS, min(self._rounds, int(self._patience_s / 4 / estimated_s)))
        before = costs_of(self._server)
        told = self._crowd.ask(call, tag, rounds + 1, *arguments, within_s=self._patience_s)
        server_us = (costs_of(self._server) - before).cpu_ms * 1e3
        tell(name, statistics.median(_rounds_s([ends for ends, _ in told])) * 1e6)
        tell(f"{name}, server CPU", server_us / (rounds + 1))
        tell(f"{name}, CPU per client", statistics.mean(spent_s for _, spent_s in told) * 1e6 / (rounds + 1))

    def _end(self) -> None:
        *others, last = range(self._size)
        self._now = "death seen by all"
        if "death" in self._kind.lacks:
            tell(self._now, None, self._kind.lacks["death"])
            self._crowd.ask("leave", ranks=[last], within_s=self._patience_s)
        else:
            killed_at = time.monotonic()
            self._crowd.kill(last)
            self._tell_seen(self._now, killed_at, others)
        *others, leaver = others
        self._now = "leave"
        ((began, ended),) = self._crowd.ask("leave", ranks=[leaver], within_s=self._patience_s)
        tell("leave", (ended - began) * 1e6)
        self._tell_seen("leave seen by all", began, others)


def _rounds_s(ends: list[list[float]]) -> list[float]:
    """A round is over when its last client is through."""
    last = [max(of_round) for of_round in zip(*ends, strict=True)]
    return [after - before for before, after in itertools.pairwise(last)]


def tell(name: str, *value: object) -> None:
    print(json.dumps([name, *value]), flush=True)


def main() -> None:
    kind, chosen = sys.argv[1], sys.argv[8:]
    port, server, size, rounds, patience_s, processes = map(int, sys.argv[2:8])
    Measurement(kind, port, server, size, rounds, patience_s, chosen).run(processes)
    sys.stdout.flush()
    os._exit(0)  # torch's client threads do not end by themselves


if __name__ == "__main__":
    main()
