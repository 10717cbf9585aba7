"""All-reduce as Numba kernels, three ways, each compared with numpy."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from heap_ranks import run
from reduce_kernels import all_reduce_in_place, all_reduce_one_shot, all_reduce_ring

import memfabric_hybrid as mf
from memfabric_hybrid import shm

RANKS, COUNT = 2, 1 << 20
RESULT, SIGNALS = 16 << 20, 32 << 20
Floats = np.ndarray[Any, np.dtype[np.float32]]


def numbers(rank: int) -> Floats:
    return np.random.default_rng(rank).random(COUNT, np.float32)


def reduce(heap: shm.ShareMemory) -> None:
    mine = heap.array(heap.local_rank, COUNT, np.float32)
    result = heap.array(heap.local_rank, COUNT, np.float32, RESULT)
    expected = sum(numbers(rank).astype(np.float64) for rank in range(RANKS))
    kernels: dict[str, tuple[Callable[[], object], Floats]] = {
        "one shot": (lambda: all_reduce_one_shot(COUNT, RESULT), result),
        "in place": (lambda: all_reduce_in_place(COUNT), mine),
        "ring": (lambda: all_reduce_ring(COUNT, SIGNALS), mine),
    }
    for name, (kernel, sums) in kernels.items():
        took = 0.0
        for _ in range(2):  # the first time it is compiled
            mine[:] = numbers(heap.local_rank)
            heap.array(heap.local_rank, 1, np.int64, SIGNALS)[:] = 0
            mf.check(heap.barrier())
            began = time.perf_counter()
            kernel()
            mf.check(heap.barrier())
            took = time.perf_counter() - began
        np.testing.assert_allclose(sums, expected, rtol=1e-5)
        if heap.local_rank == 0:
            print(f"{name}: {COUNT} floats of {RANKS} ranks in {took * 1e3:.1f} ms, as numpy says")
        mf.check(heap.barrier())


if __name__ == "__main__":
    sys.exit(run(reduce, RANKS))
