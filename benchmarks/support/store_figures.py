"""What a store's clients see, in a program of its own: it runs where the store's client is installed, ours or not.

    store_figures.py KIND PORT ROUNDS CLIENTS...

Prints a JSON object from the name of each figure to microseconds.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import statistics
import sys
import time
import traceback

from support.store_peers import PEERS, StorePeer


def collectives(peer: StorePeer, port: int, clients: int, rounds: int) -> dict[str, float]:
    """Median µs of a barrier and of an all-gather of 64 bytes among `clients` forked processes."""
    shared = mmap.mmap(-1, 8 * 2 * rounds * clients)
    ends = memoryview(shared).cast("d", [2, rounds, clients])  # not numpy: its code would be cold in every process
    pids = []
    for rank in range(clients):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                client(peer, port, rank, clients, ends)
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        pids.append(pid)
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in pids)
    if failed:
        raise SystemExit(f"{failed} of {clients} clients failed")
    figures = {}
    for name, moments in zip(("barrier", "all-gather"), ends.tolist(), strict=True):
        last = [max(of_clients) for of_clients in moments]
        figures[name] = statistics.median(after - before for before, after in itertools.pairwise(last)) * 1e6
    return figures


def client(peer: StorePeer, port: int, rank: int, size: int, ends: memoryview) -> None:
    peer.connect(port)
    data = bytes([rank % 256]) * 64
    rounds = ends.shape[1]
    tag = f"{size}-"
    for number in range(2):
        peer.barrier(tag + "warm", number, rank, size)
    for number in range(rounds):
        peer.barrier(tag, number, rank, size)
        ends[0, number, rank] = time.monotonic()
    for number in range(rounds):
        parts = peer.all_gather(tag, number, rank, size, data)
        assert len(parts) == size
        assert parts[size // 2] == bytes([size // 2 % 256]) * 64
        ends[1, number, rank] = time.monotonic()
    peer.barrier(tag + "end", 0, rank, size)


def single_client(peer: StorePeer, port: int) -> dict[str, float]:
    """Median µs of an acknowledged set and of a get of 64 bytes from one client."""
    peer.connect(port)
    value = b"x" * 64
    figures = {}
    for name, call in (
        ("set", lambda i: peer.set(f"key{i % 100}", value)),
        ("get", lambda i: peer.get(f"key{i % 100}")),
    ):
        samples = []
        for i in range(1000):
            start = time.perf_counter_ns()
            call(i)
            samples.append((time.perf_counter_ns() - start) / 1e3)
        figures[name] = statistics.median(samples)
    return figures


def main() -> None:
    kind, port, rounds, *sizes = sys.argv[1:]
    peer = PEERS[kind]()
    figures: dict[str, float] = {}
    for size in map(int, sizes):
        for name, us in collectives(peer, int(port), size, int(rounds)).items():
            figures[f"{name} of {size}"] = us
    figures |= single_client(peer, int(port))
    print(json.dumps(figures), flush=True)
    os._exit(0)  # torch's client threads do not end by themselves


if __name__ == "__main__":
    main()
