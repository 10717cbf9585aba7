"""One rank of the collectives' benchmark: ours, MPI or gloo, chosen by name; rank 0 prints its figures as JSON.

Started by `share_memory.py` as `python collective_rank.py <peer> <rank> <size> <url or port> <what> <library>`
(MPI knows rank and size itself).
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

REDUCED_BYTES = 64 << 20
COUNT = REDUCED_BYTES // 4
BLOCK = 200  # calls that are timed together


class Ours:
    """The symmetric heap; the all-reduce is a C++ kernel of the examples between two barriers."""

    def __init__(self, rank: int, size: int, url: str, library: str) -> None:
        from memfabric_hybrid import shm

        assert shm.initialize(url, size, rank, 0, shm.ShmConfig()) == 0
        self.heap = shm.create(0, size, rank, REDUCED_BYTES)
        self.barrier: Callable[[], Any] = self.heap.barrier
        letter = bytes(8)
        self.all_gather: Callable[[], Any] = lambda: self.heap.all_gather(letter)
        self.data = self.heap.array(rank, COUNT, np.float32)
        kernel, count = ctypes.CDLL(library).all_reduce_in_place, ctypes.c_uint64(COUNT)

        def reduce() -> None:
            self.heap.barrier()
            kernel(count)
            self.heap.barrier()

        self.all_reduce: Callable[[], Any] = reduce
        self.shutdown = shm.uninitialize


class Mpi:
    """mpi4py's fast (buffer) calls."""

    def __init__(self, *_: object) -> None:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        self.barrier: Callable[[], Any] = world.Barrier
        letter, letters = bytearray(8), bytearray(8 * world.size)
        self.all_gather: Callable[[], Any] = lambda: world.Allgather(letter, letters)
        self.data = np.zeros(COUNT, np.float32)
        self.all_reduce: Callable[[], Any] = lambda: world.Allreduce(MPI.IN_PLACE, self.data, MPI.SUM)
        self.shutdown = world.Barrier


class Gloo:
    """torch.distributed."""

    def __init__(self, rank: int, size: int, port: str, _: str) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
        self.barrier: Callable[[], Any] = dist.barrier
        letter, letters = torch.zeros(8, dtype=torch.uint8), torch.zeros(8 * size, dtype=torch.uint8)
        self.all_gather: Callable[[], Any] = lambda: dist.all_gather_single(letters, letter)
        tensor = torch.zeros(COUNT)
        self.data = tensor.numpy()
        self.all_reduce: Callable[[], Any] = lambda: dist.all_reduce(tensor)
        self.shutdown = dist.destroy_process_group


PEERS: dict[str, Any] = {"ours": Ours, "mpi": Mpi, "gloo": Gloo}


def latency_us(call: Callable[[], Any], barrier: Callable[[], Any], block: int, blocks: int) -> float:
    """Median over blocks of the time per call."""
    samples = []
    for _ in range(blocks):
        barrier()
        began = time.perf_counter()
        for _ in range(block):
            call()
        samples.append((time.perf_counter() - began) / block * 1e6)
    return statistics.median(samples)


def main() -> None:
    name, rank_text, size_text, place, what, library = sys.argv[1:]
    rank, size = int(rank_text), int(size_text)
    peer = PEERS[name](rank, size, place, library)
    if name == "mpi":
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.rank
    if what == "latency":
        blocks, block = (40, BLOCK) if size <= 2 else (20, BLOCK // size)
        latency_us(peer.barrier, peer.barrier, block, 5)
        figures = {
            "barrier": latency_us(peer.barrier, peer.barrier, block, blocks),
            "all-gather": latency_us(peer.all_gather, peer.barrier, block, blocks),
        }
    else:
        samples = []
        for _ in range(8):
            peer.data[:] = rank + 1
            peer.barrier()
            began = time.perf_counter()
            peer.all_reduce()
            samples.append((time.perf_counter() - began) * 1e6)
            assert (peer.data == size * (size + 1) / 2).all(), "the sums are wrong"
        figures = {"all-reduce": statistics.median(samples[1:])}
    if rank == 0:
        print(json.dumps(figures), flush=True)
    peer.barrier()
    peer.shutdown()


if __name__ == "__main__":
    main()
